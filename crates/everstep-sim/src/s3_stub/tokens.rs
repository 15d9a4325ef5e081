//! The services that credentials come from: STS, SSO, container and instance metadata, on the same port.

use std::collections::HashMap;
use std::time::SystemTime;

use http::Method;

use super::Shared;
use super::clock::{iso, milliseconds};
use super::respond::{Reply, error, text};
use super::seen::Seen;
use super::xml::parameter;

/// Keys that the stub made.
#[derive(Debug, Clone)]
pub struct Minted {
    /// The access key.
    pub access_key: String,
    /// The secret key.
    pub secret_key: String,
    /// The session token.
    pub token: String,
    /// When they end, by the stub's clock.
    pub expires: SystemTime,
}

/// Every key made so far.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    minted: HashMap<String, (Minted, u32)>,
}

impl Tokens {
    pub(super) fn mint(&mut self, expires: SystemTime) -> Minted {
        let number = self.minted.len();
        let minted = Minted {
            access_key: format!("ASIASTUB{number:04}"),
            secret_key: format!("hidden-{number}"),
            token: format!("session-{number}"),
            expires,
        };
        self.minted.insert(minted.access_key.clone(), (minted.clone(), 0));
        minted
    }

    pub(super) fn expire_all(&mut self) {
        self.minted.values_mut().for_each(|(minted, _)| minted.expires = SystemTime::UNIX_EPOCH);
    }

    /// Whether a minted key is still good, counting its use; `None` for a key that was not minted.
    pub(super) fn use_key(&mut self, key: &str, now: SystemTime, most: Option<u32>) -> Option<bool> {
        let (minted, uses) = self.minted.get_mut(key)?;
        *uses += 1;
        Some(now < minted.expires && most.is_none_or(|most| *uses <= most))
    }
}

/// The path below which credentials for a container are.
const CONTAINER: &str = "/container/credentials";
const SSO: &str = "/federation/credentials";
const METADATA: &str = "/latest/";
const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
const ROLE: &str = "stub-role";

/// The answer of a token service, if the request is to one.
pub(super) fn answer(shared: &Shared, seen: &Seen, body: &[u8]) -> Option<Reply> {
    let form = std::str::from_utf8(body).unwrap_or_default();
    match seen.raw_path.as_str() {
        "/" if seen.method == Method::POST => Some(sts(shared, form)),
        CONTAINER => Some(text(200, &metadata_keys(&mint(shared)))),
        SSO => Some(sso(shared, seen)),
        path if path.starts_with(METADATA) => Some(instance(shared, seen, path)),
        _ => None,
    }
}

fn mint(shared: &Shared) -> Minted {
    let expires = (shared.settings.clock)() + shared.settings.lifetime;
    shared.state().tokens.mint(expires)
}

fn sts(shared: &Shared, form: &str) -> Reply {
    let action = parameter(form, "Action").unwrap_or_default();
    let wanted = match action.as_str() {
        "AssumeRoleWithWebIdentity" => {
            parameter(form, "WebIdentityToken").is_some_and(|token| token == "stub-identity")
        }
        "AssumeRole" => true,
        _ => false,
    };
    if !wanted {
        return text(
            400,
            "<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>not an identity of the stub</Message>\
             </Error></ErrorResponse>",
        );
    }
    let Minted { access_key, secret_key, token, expires } = mint(shared);
    let expires = iso(expires);
    text(
        200,
        &format!(
            "<{action}Response><{action}Result><AssumedRoleUser><AssumedRoleId>id:stub</AssumedRoleId>\
             <Arn>arn:aws:sts::1:assumed-role/stub/stub</Arn></AssumedRoleUser><Credentials>\
             <AccessKeyId>{access_key}</AccessKeyId><SecretAccessKey>{secret_key}</SecretAccessKey>\
             <SessionToken>{token}</SessionToken><Expiration>{expires}</Expiration></Credentials>\
             </{action}Result></{action}Response>"
        ),
    )
}

fn sso(shared: &Shared, seen: &Seen) -> Reply {
    if seen.header("x-amz-sso_bearer_token") != Some("stub-sso-token") {
        return text(401, r#"{"message":"Session token not found or invalid"}"#);
    }
    let Minted { access_key, secret_key, token, expires } = mint(shared);
    let expires = milliseconds(expires);
    text(
        200,
        &format!(
            r#"{{"roleCredentials":{{"accessKeyId":"{access_key}","secretAccessKey":"{secret_key}","sessionToken":"{token}","expiration":{expires}}}}}"#
        ),
    )
}

fn instance(shared: &Shared, seen: &Seen, path: &str) -> Reply {
    if path == "/latest/api/token" {
        let mut reply = text(200, "stub-metadata-token");
        reply
            .headers_mut()
            .insert("x-aws-ec2-metadata-token-ttl-seconds", http::HeaderValue::from_static("21600"));
        return reply;
    }
    if seen.header("x-aws-ec2-metadata-token") != Some("stub-metadata-token") {
        return text(401, "no token");
    }
    match path.strip_prefix(ROLES) {
        Some("") => text(200, ROLE),
        Some(ROLE) => text(200, &metadata_keys(&mint(shared))),
        _ if path == "/latest/meta-data/placement/region" => text(200, "eu-stub-1"),
        _ => error(404, "NotFound", ""),
    }
}

fn metadata_keys(minted: &Minted) -> String {
    let Minted { access_key, secret_key, token, expires } = minted;
    let expires = iso(*expires);
    format!(
        r#"{{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"{access_key}","SecretAccessKey":"{secret_key}","Token":"{token}","Expiration":"{expires}","LastUpdated":"2026-01-01T00:00:00Z"}}"#
    )
}
