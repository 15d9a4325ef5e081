//! A save that ends at every possible call to the store: by a store that fails, and by a process that is killed. And saves
//! by several processes, some of which fail, die or are in each other's way. And collections that do, beside saves; and all of them at once, as processes that are killed at random.

mod collecting;
mod crowd;
mod halves;
mod killed;
mod late;
mod ranks;
mod rivals;
mod severed;
mod states;
mod storm;
