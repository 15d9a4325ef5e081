use super::*;

fn gate(min: usize, start: usize, max: usize) -> Gate {
    Gate::new(LimitSettings { min, start, max }.ordered())
}

/// Fills the window, then ends every request of it with `load`.
async fn round(gate: &Gate, load: Load) {
    let mut passes = Vec::new();
    let places = gate.lock().limit();
    for _ in 0..places {
        passes.push(gate.enter().await);
    }
    assert_eq!(gate.permits.available_permits(), 0, "a full window has no free place");
    passes.into_iter().for_each(|pass| pass.leave(load));
}

#[tokio::test]
async fn the_window_grows_fast_until_the_store_first_objects_and_slowly_after() {
    let gate = gate(1, 4, 64);
    round(&gate, Load::Fine).await;
    let fast = gate.lock().limit();
    assert!(fast > 5, "slow start adds more than one place per round, got {fast}");
    gate.enter().await.leave(Load::TooMuch);
    let halved = gate.lock().limit();
    assert_eq!(halved, fast / 2);
    round(&gate, Load::Fine).await;
    let slow = gate.lock().limit();
    assert!(slow <= halved + 1, "afterwards at most one place per round, got {halved} then {slow}");
}

#[tokio::test]
async fn one_burst_of_objections_halves_the_window_once() {
    let gate = gate(1, 32, 64);
    round(&gate, Load::TooMuch).await;
    assert_eq!(gate.lock().limit(), 16);
}

#[tokio::test]
async fn the_window_stays_between_its_ends_and_no_place_is_lost() {
    let gate = gate(2, 8, 10);
    for _ in 0..5 {
        round(&gate, Load::TooMuch).await;
    }
    assert_eq!(gate.lock().limit(), 2);
    for _ in 0..100 {
        round(&gate, Load::Fine).await;
    }
    assert_eq!(gate.lock().limit(), 10);
    assert_eq!(gate.permits.available_permits(), 10);
    assert_eq!(gate.lock().issued, 10);
}

#[tokio::test]
async fn an_idle_window_does_not_grow() {
    let gate = gate(1, 8, 64);
    for _ in 0..50 {
        gate.enter().await.leave(Load::Fine);
    }
    assert_eq!(gate.lock().limit(), 8);
}

#[tokio::test]
async fn a_request_whose_caller_went_away_gives_its_place_back() {
    let gate = gate(1, 1, 1);
    drop(gate.enter().await);
    assert_eq!(gate.permits.available_permits(), 1);
}

#[test]
fn senseless_settings_are_put_in_order() {
    let settings = LimitSettings { min: 0, start: 900, max: 5 }.ordered();
    assert_eq!(settings, LimitSettings { min: 1, start: 5, max: 5 });
}
