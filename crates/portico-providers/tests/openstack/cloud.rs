//! A real OpenStack on loopback: Keystone, Neutron and Octavia of the environment that `make deps`
//! makes, with MariaDB and RabbitMQ from Debian, all in a temporary folder. Machines and networks
//! exist in its databases alone. It ends with its owner.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use portico_testbed::Process;

/// For any one thing to be there.
const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const PASSWORD: &str = "secret";

pub(crate) struct Cloud {
    pub keystone: u16,
    pub neutron: u16,
    pub octavia: u16,
    folder: tempfile::TempDir,
    venv: PathBuf,
    processes: Vec<Process>,
}

impl Cloud {
    pub(crate) fn start() -> Self {
        let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("openstack");
        assert!(
            venv.join("bin/octavia-worker").exists(),
            "{} is missing: run `make deps`",
            venv.display()
        );
        let (keystone, neutron, octavia) = (free_port(), free_port(), free_port());
        let folder = tempfile::tempdir().unwrap();
        let mut cloud = Self {
            keystone,
            neutron,
            octavia,
            folder,
            venv,
            processes: Vec::new(),
        };
        let rabbit = free_port();
        cloud.write_files(rabbit);
        cloud.start_mariadb();
        cloud.start_rabbitmq(rabbit);
        cloud.prepare();
        cloud.start_services(rabbit);
        cloud
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_files(&self, rabbit: u16) {
        let login = format!(
            "auth_url = http://127.0.0.1:{}\nauth_type = password\nproject_domain_id = \
             default\nuser_domain_id = default\nproject_name = admin\nusername = admin\npassword \
             = {PASSWORD}",
            self.keystone
        );
        let fill = |text: &str, network_driver: &str| {
            text.replace("@DIR@", &self.folder.path().to_string_lossy())
                .replace("@VENV@", &self.venv.to_string_lossy())
                .replace("@RABBIT@", &rabbit.to_string())
                .replace("@NEUTRON@", &self.neutron.to_string())
                .replace("@NETWORK_DRIVER@", network_driver)
                .replace("@LOGIN@", &login)
        };
        for folder in [
            "keystone/fernet",
            "keystone/credential",
            "neutron",
            "db",
            "rabbit",
        ] {
            fs::create_dir_all(self.path(folder)).unwrap();
        }
        let octavia = include_str!("conf/octavia.conf");
        // The API asks Neutron for real ports of its addresses; the worker plugs them in nowhere.
        for (name, text, driver) in [
            ("keystone.conf", include_str!("conf/keystone.conf"), ""),
            (
                "neutron/neutron.conf",
                include_str!("conf/neutron.conf"),
                "",
            ),
            ("octavia-api.conf", octavia, "allowed_address_pairs_driver"),
            ("octavia-worker.conf", octavia, "network_noop_driver"),
            ("rabbitmq.conf", include_str!("conf/rabbitmq.conf"), ""),
            ("serve.py", include_str!("conf/serve.py"), ""),
            ("worker.py", include_str!("conf/worker.py"), ""),
            (
                "init.sql",
                "CREATE DATABASE neutron;\nCREATE DATABASE octavia;\n",
                "",
            ),
        ] {
            fs::write(self.path(name), fill(text, driver)).unwrap();
        }
    }

    /// Without accounts: whoever can open its socket is root.
    fn start_mariadb(&mut self) {
        let mut command = Command::new("/usr/sbin/mariadbd");
        command.args([
            "--no-defaults",
            "--user=root",
            "--skip-grant-tables",
            "--skip-networking",
            "--skip-log-bin",
        ]);
        command.args([
            "--innodb-flush-log-at-trx-commit=0",
            "--max-connections=300",
        ]);
        for (option, name) in [
            ("datadir", "db"),
            ("socket", "db.sock"),
            ("pid-file", "db.pid"),
            ("init-file", "init.sql"),
        ] {
            command.arg(format!("--{option}={}", self.path(name).display()));
        }
        self.spawn("mariadb", command);
    }

    fn start_rabbitmq(&mut self, port: u16) {
        let (names, between) = (free_port().to_string(), free_port().to_string());
        // One that the broker starts itself would outlive it.
        let mut epmd = Command::new("epmd");
        epmd.args(["-port", &names, "-address", "127.0.0.1"]);
        self.spawn("epmd", epmd);
        // Debian's script in /usr/sbin changes to another user.
        let mut command = Command::new("/usr/lib/rabbitmq/bin/rabbitmq-server");
        command
            .env("HOME", self.folder.path())
            .env("ERL_EPMD_PORT", names)
            .env("ERL_EPMD_ADDRESS", "127.0.0.1");
        command
            .env("RABBITMQ_NODENAME", format!("portico{port}@localhost"))
            .env("RABBITMQ_DIST_PORT", between);
        command.env(
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            "-kernel inet_dist_use_interface {127,0,0,1}",
        );
        for (variable, name) in [
            ("RABBITMQ_MNESIA_BASE", "rabbit"),
            ("RABBITMQ_LOG_BASE", "rabbit"),
            ("RABBITMQ_CONFIG_FILE", "rabbitmq"),
            ("RABBITMQ_PID_FILE", "rabbit.pid"),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", "plugins"),
        ] {
            command.env(variable, self.path(name));
        }
        self.spawn("rabbitmq", command);
    }

    /// Databases, keys and the first account, side by side.
    fn prepare(&self) {
        self.wait("MariaDB", || self.path("db.sock").exists());
        std::thread::scope(|scope| {
            scope.spawn(|| self.prepare_keystone());
            scope.spawn(|| {
                let config = self.path("neutron/neutron.conf");
                self.run(
                    "neutron-db-manage",
                    &[
                        "--config-file",
                        &config.to_string_lossy(),
                        "upgrade",
                        "head",
                    ],
                );
            });
            self.make_ca();
            let config = self.path("octavia-api.conf");
            self.run(
                "octavia-db-manage",
                &[
                    "--config-file",
                    &config.to_string_lossy(),
                    "upgrade",
                    "head",
                ],
            );
        });
    }

    fn prepare_keystone(&self) {
        let (config, url) = (
            self.path("keystone.conf"),
            format!("http://127.0.0.1:{}/v3", self.keystone),
        );
        let owner = ["--keystone-user", "root", "--keystone-group", "root"];
        let bootstrap = [
            "--bootstrap-password",
            PASSWORD,
            "--bootstrap-region-id",
            "RegionOne",
        ];
        let urls = [
            "--bootstrap-public-url",
            &url,
            "--bootstrap-internal-url",
            &url,
        ];
        for arguments in [
            vec!["db_sync"],
            [&["fernet_setup"], &owner[..]].concat(),
            [&["credential_setup"], &owner[..]].concat(),
            [&["bootstrap"], &bootstrap[..], &urls[..]].concat(),
        ] {
            self.run(
                "keystone-manage",
                &[
                    &["--config-file", &config.to_string_lossy()],
                    &arguments[..],
                ]
                .concat(),
            );
        }
    }

    /// Octavia wants one, though no machine will ever see it.
    fn make_ca(&self) {
        let mut command = Command::new("openssl");
        command.args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-days",
            "2",
            "-subj",
            "/CN=test",
            "-passout",
            "pass:test",
        ]);
        command
            .arg("-keyout")
            .arg(self.path("ca.key"))
            .arg("-out")
            .arg(self.path("ca.pem"));
        self.finish(command);
    }

    fn start_services(&mut self, rabbit: u16) {
        self.wait("RabbitMQ", || {
            TcpStream::connect(("127.0.0.1", rabbit)).is_ok()
        });
        for (name, module, port) in [
            ("keystone", "keystone.wsgi.api", self.keystone),
            ("neutron", "neutron.wsgi.api", self.neutron),
            ("octavia-api", "octavia.wsgi.api", self.octavia),
        ] {
            let mut command = self.python("python");
            command
                .arg(self.path("serve.py"))
                .args([module, &format!("127.0.0.1:{port}")]);
            if name == "octavia-api" {
                command
                    .arg("--config-file")
                    .arg(self.path("octavia-api.conf"));
            }
            command.env("OS_KEYSTONE_CONFIG_FILES", self.path("keystone.conf"));
            command
                .env("OS_NEUTRON_CONFIG_DIR", self.path("neutron"))
                .env("OS_NEUTRON_CONFIG_FILES", "neutron.conf");
            self.spawn(name, command);
        }
        let mut worker = self.python("python");
        worker
            .arg(self.path("worker.py"))
            .arg("--config-file")
            .arg(self.path("octavia-worker.conf"));
        self.spawn("octavia-worker", worker);
        for (name, port) in [
            ("Keystone", self.keystone),
            ("Neutron", self.neutron),
            ("Octavia", self.octavia),
        ] {
            self.wait(name, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        }
        // What is sent to a queue that is not there is lost.
        let log = self.path("octavia-worker.log");
        self.wait("Octavia's worker", || {
            fs::read_to_string(&log).is_ok_and(|text| text.contains("Starting V2 consumer"))
        });
    }

    fn python(&self, program: &str) -> Command {
        let mut command = Command::new(self.venv.join("bin").join(program));
        command
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONWARNINGS", "ignore")
            .current_dir(self.folder.path());
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = self.python(program);
        command.args(arguments);
        self.finish(command);
    }

    fn finish(&self, mut command: Command) {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {text}");
    }

    fn spawn(&mut self, name: &str, mut command: Command) {
        let log = File::create(self.path(&format!("{name}.log"))).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.processes.push(Process::start(command).unwrap());
    }

    fn wait(&self, what: &str, is_there: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_there() {
            assert!(
                began.elapsed() < PATIENCE,
                "{what} is not there after {PATIENCE:?}:\n{}",
                self.logs()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The end of each.
    fn logs(&self) -> String {
        let mut text = String::new();
        for entry in fs::read_dir(self.folder.path()).unwrap().flatten() {
            if entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "log")
            {
                let log = fs::read_to_string(entry.path()).unwrap_or_default();
                let lines: Vec<&str> = log.lines().rev().take(15).collect();
                text += &format!(
                    "{}:\n{}\n",
                    entry.path().display(),
                    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
                );
            }
        }
        text
    }

    /// As an operator with a hand in Octavia's database would.
    pub(crate) fn sql(&self, statement: &str) {
        let script = "import pymysql, sys; c = pymysql.connect(unix_socket=sys.argv[1], user='root', \
                      database='octavia', autocommit=True); c.cursor().execute(sys.argv[2])";
        self.run(
            "python",
            &[
                "-c",
                script,
                &self.path("db.sock").to_string_lossy(),
                statement,
            ],
        );
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}
