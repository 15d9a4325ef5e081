//! Real servers for tests, of S3 and of Azure: each is started once per test process, on free ports of 127.0.0.1 with a
//! folder of its own, and ends with that process, however that ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use everstep_store::address::Root;
use everstep_store::cloud::{Cloud, CloudCredentials, CloudLocation, CloudOptions, CloudStore, Secret};
use everstep_store::s3::{Keys, S3Credentials, S3Location, S3Options, S3Store};
use everstep_store::{SystemWorld, World};

/// The keys that every server takes.
pub const ACCESS_KEY: &str = "EVERSTEPTESTS0000000";
/// Their secret half.
pub const SECRET_KEY: &str = "secret-for-tests-on-127.0.0.1";

/// The account that Azurite has, and its key in base64.
const AZURE_ACCOUNT: (&str, &str) = ("everstep", "c2VjcmV0LWZvci10ZXN0cy1vbi0xMjcuMC4wLjE=");

/// How long the slowest server may take to listen.
const START: Duration = Duration::from_secs(120);

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// Its endpoint.
    pub url: String,
    folder: PathBuf,
    users: Mutex<BTreeMap<String, Keys>>,
    buckets: AtomicU32,
    /// Holds the pipe whose end stops the server.
    _process: Mutex<Child>,
}

/// Ceph's S3 gateway: a production server with atomic creates.
pub fn radosgw() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        needs(Path::new("/usr/bin/radosgw"));
        let monitor = free_port().to_string();
        Server::start("start-radosgw.sh", &[&monitor])
    })
}

/// ministack: quick, atomic creates.
pub fn ministack() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        needs(&tool("ministack"));
        Server::start("start-ministack.sh", &[])
    })
}

/// rclone, which ignores If-None-Match.
pub fn rclone() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        needs(&tool("rclone"));
        Server::start("start-rclone.sh", &[])
    })
}

/// A running Azurite.
#[derive(Debug)]
pub struct Azurite(Server);

/// Azurite, a double of Azure's blob store that answers 409 to a create of what is there.
pub fn azurite() -> &'static Azurite {
    static SERVER: OnceLock<Azurite> = OnceLock::new();
    SERVER.get_or_init(|| {
        needs(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/azurite/installed"));
        let server = Server::start("start-azurite.sh", &[]);
        Azurite(Server { url: format!("{}/{}", server.url, AZURE_ACCOUNT.0), ..server })
    })
}

impl Azurite {
    /// Makes a container that nobody else uses.
    pub fn container(&self) -> String {
        let container = format!("container-{}", self.0.buckets.fetch_add(1, Ordering::Relaxed));
        self.client("create", &container);
        container
    }

    /// Options that reach it.
    pub fn options(&self) -> CloudOptions {
        CloudOptions {
            account: Some(AZURE_ACCOUNT.0.to_owned()),
            endpoint_url: Some(self.0.url.clone()),
            allow_http: true,
            credentials: CloudCredentials::AccountKey(Secret(AZURE_ACCOUNT.1.to_owned())),
            ..CloudOptions::default()
        }
    }

    /// The raw names in `container`, as another client sees them.
    pub fn keys(&self, container: &str) -> Vec<String> {
        serde_json::from_slice(&self.client("keys", container)).expect("JSON")
    }

    fn client(&self, command: &str, container: &str) -> Vec<u8> {
        let mut client = python("azure-client.py");
        client.args([self.0.url.as_str(), command, container]);
        client.env("AZURE_ACCOUNT", AZURE_ACCOUNT.0).env("AZURE_KEY", AZURE_ACCOUNT.1);
        output(client)
    }
}

/// Options that reach a stub that is Google.
pub fn google_options(stub: &everstep_sim::s3_stub::S3Stub) -> CloudOptions {
    CloudOptions {
        endpoint_url: Some(stub.url()),
        allow_http: true,
        credentials: CloudCredentials::Token(Secret("stub-token".to_owned())),
        ..CloudOptions::default()
    }
}

/// A bare store of Google or Azure.
pub async fn open_cloud(cloud: Cloud, (bucket, root): (&str, &str), options: CloudOptions) -> CloudStore {
    let root = Root::parse(root).expect("a root");
    let location = CloudLocation { cloud, bucket: bucket.to_owned(), root };
    CloudStore::open(location, options, Arc::new(SystemWorld::new())).await.expect("settings that work")
}

impl Server {
    fn start(script: &str, more_ports: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder").keep();
        let port = free_port();
        let output = File::create(folder.join("output")).expect("a file in a new folder");
        let errors = output.try_clone().expect("a second handle");
        let mut process = Command::new(scripts().join("until-stdin-closes.sh"))
            .arg(&folder)
            .arg(scripts().join(script))
            .arg(port.to_string())
            .args(more_ports)
            .arg(&folder)
            .env("S3_ACCESS_KEY", ACCESS_KEY)
            .env("S3_SECRET_KEY", SECRET_KEY)
            .env("AZURE_ACCOUNT", AZURE_ACCOUNT.0)
            .env("AZURE_KEY", AZURE_ACCOUNT.1)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .expect("bash runs scripts");
        wait_until_it_listens(port, &mut process, &folder);
        let url = format!("http://127.0.0.1:{port}");
        Self {
            url,
            folder,
            users: Mutex::default(),
            buckets: AtomicU32::new(0),
            _process: Mutex::new(process),
        }
    }

    /// Makes a bucket that nobody else uses.
    pub fn bucket(&self) -> String {
        let bucket = format!("bucket-{}", self.buckets.fetch_add(1, Ordering::Relaxed));
        self.client(&["create", &bucket]);
        bucket
    }

    /// Options that reach this server.
    pub fn options(&self) -> S3Options {
        reaching(
            &self.url,
            Keys {
                access_key: ACCESS_KEY.to_owned(),
                secret_key: SECRET_KEY.to_owned(),
                token: None,
                expires: None,
            },
        )
    }

    /// The keys of a user of radosgw, made on first use.
    ///
    /// # Panics
    /// On another server.
    pub fn user(&self, name: &str) -> Keys {
        let mut users = self.users.lock().expect("no test panicked while making a user");
        let make = || {
            let access_key = format!("EVERSTEP{}", name.to_uppercase());
            let keys =
                Keys { access_key, secret_key: format!("secret-of-{name}"), token: None, expires: None };
            let mut command = Command::new("radosgw-admin");
            command.arg("-c").arg(self.folder.join("ceph.conf")).args(["-n", "client.rgw", "user", "create"]);
            command.args([format!("--uid={name}"), format!("--display-name={name}")]);
            command.args([
                format!("--access-key={}", keys.access_key),
                format!("--secret-key={}", keys.secret_key),
            ]);
            output(command);
            keys
        };
        users.entry(name.to_owned()).or_insert_with(make).clone()
    }

    /// A bare store below `root` of `bucket`.
    pub async fn store(&self, bucket: &str, root: &str) -> S3Store {
        open(bucket, root, self.options()).await
    }

    /// Runs a command of `scripts/s3-client.py`, which shares no code with ours; gives its output.
    ///
    /// # Panics
    /// With what it said, when it failed.
    pub fn client(&self, arguments: &[&str]) -> Vec<u8> {
        let (command, rest) = arguments.split_first().expect("a command");
        let mut client = python("s3-client.py");
        client.args([self.url.as_str(), command]).args(rest);
        client.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        output(client)
    }

    /// The raw keys in `bucket`, as that other client sees them.
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        let listing: Vec<(String, u64)> =
            serde_json::from_slice(&self.client(&["keys", bucket])).expect("JSON");
        listing.into_iter().map(|(key, _)| key).collect()
    }
}

/// Options for a plain http endpoint and fixed keys.
pub fn reaching(url: &str, keys: Keys) -> S3Options {
    S3Options {
        endpoint_url: Some(url.to_owned()),
        allow_http: true,
        credentials: S3Credentials::Fixed(keys),
        ..S3Options::default()
    }
}

/// A bare S3 store.
pub async fn open(bucket: &str, root: &str, options: S3Options) -> S3Store {
    let location = S3Location { bucket: bucket.to_owned(), root: Root::parse(root).expect("a root") };
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    S3Store::open(location, options, world).await.expect("settings that work")
}

fn python(script: &str) -> Command {
    needs(&tool("python"));
    let mut command = Command::new(tool("python"));
    command.arg(scripts().join(script)).stdin(Stdio::null());
    command
}

fn output(mut command: Command) -> Vec<u8> {
    let done = command.output().expect("the command starts");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts")
}

fn tool(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin").join(name)
}

/// Tests do not skip silently: what is missing is a failure that says what to do.
fn needs(tool: &Path) {
    assert!(tool.exists(), "{} is missing: run scripts/install-test-tools.sh", tool.display());
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("a bound listener has an address").port()
}

#[expect(clippy::disallowed_methods, reason = "a real server starts in real time")]
fn wait_until_it_listens(port: u16, process: &mut Child, folder: &Path) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let started = Instant::now();
    while TcpStream::connect(address).is_err() {
        let ended = process.try_wait().expect("our own child");
        if ended.is_some() || started.elapsed() > START {
            let output = std::fs::read_to_string(folder.join("output")).unwrap_or_default();
            panic!("the server did not start ({ended:?}): {output}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
