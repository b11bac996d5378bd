# Keelson: what a developer types. `make help` lists it.

CARGO ?= cargo
# Where cargo puts the binary, wherever the target directory is configured to be.
TARGET = $(shell $(CARGO) metadata --format-version 1 --no-deps 2>/dev/null | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
# Flags for `make run`; none are needed.
ARGS ?=
IMAGE ?= keelson:dev
# Flags for the end-to-end checks (`cd e2e && go run . -help`).
E2E ?=
# Flags for the comparison of expressions (`go doc ./e2e/cel`).
CEL ?=
# Flags for the benchmark of the server (`cd bench && go run . -help`).
BENCH ?=

# The entropy of the CPU's jitter, which aws-lc gathers besides the system's, would take most of the time of a start.
release dist bench overload planes e2e envtest clients-test image: export AWS_LC_SYS_NO_JITTER_ENTROPY = 1

.PHONY: help run test lint fmt deny bench overload e2e envtest envtest-test image image-test helm-test cel-test clients-test planes release dist clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: release ## build, and start a server on ./keelson-data; it prints what to type next
	@exec $(TARGET)/release/keelson $(ARGS)

release: ## build target/release/keelson, quickly and not optimized
	@scripts/install-tools.sh build
	$(CARGO) build --release

dist: ## build target/dist/keelson as it is shipped: static, stripped, optimized as a whole; its symbols are beside it
	@scripts/install-tools.sh build
	@CARGO="$(CARGO)" scripts/dist.sh

test: ## install what the tests need, then run every unit, contract and integration test
	@scripts/install-tools.sh test
	$(CARGO) test

lint: ## formatting, clippy without warnings, the shape of the tree, licences if cargo-deny is there
	@scripts/install-tools.sh build
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- -D warnings
	$(CARGO) test --test tidy
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(MAKE) --no-print-directory deny; \
	 else echo "cargo-deny is not installed: licences and advisories are not checked (make deny installs it)"; fi

fmt: ## format the Rust and Go sources
	$(CARGO) fmt
	gofmt -w e2e bench

deny: ## licences, sources and duplicates of dependencies; known vulnerabilities where their database can be had
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo "== installing cargo-deny (minutes)"; $(CARGO) install cargo-deny --locked; }
	$(CARGO) deny check bans licenses sources
	@$(CARGO) deny fetch db || { echo "the advisory database cannot be had: advisories are not checked"; exit 0; } && \
	 $(CARGO) deny check --disable-fetch advisories

bench: dist ## what operations and a cluster's load cost the server as shipped, then the criterion benchmarks; BENCH='-run list -profile'
	@scripts/install-tools.sh bench
	cd bench && go run . -server Keelson=$(TARGET)/dist/keelson $(BENCH)
	cd bench && go run . -cluster -server Keelson=$(TARGET)/dist/keelson $(BENCH)
	$(CARGO) bench --bench '*'

e2e: dist ## real kubectl, controller manager, scheduler and Prometheus against the server as shipped, on the embedded store and on etcd
	@scripts/install-tools.sh e2e
	cd e2e && go run . -keelson $(TARGET)/dist/keelson $(E2E)
	cd e2e && KEELSON=$(TARGET)/dist/keelson go test -count 1 ./podsecurity ./logs ./monitoring

envtest: dist ## the archive of binaries that controller-runtime's envtest starts, with Keelson as kube-apiserver and etcd, in target/envtest
	@scripts/install-tools.sh envtest
	@scripts/envtest.sh $(TARGET)/dist/keelson .tools/bin/kubectl $(TARGET)/envtest

envtest-test: envtest ## controller-runtime's envtest with these binaries: definitions, webhooks, a manager, users
	cd e2e && KUBEBUILDER_ASSETS=$(TARGET)/envtest/controller-tools/envtest go test -count 1 -v ./envtest

overload: dist ## for a minute, what well-behaved users notice of one who wants everything; BENCH='-store embedded'
	@scripts/install-tools.sh bench
	cd bench && go run . -overload -server Keelson=$(TARGET)/dist/keelson $(BENCH)

image: dist ## container image (docker, podman or buildah); no base image is pulled
	@CARGO="$(CARGO)" scripts/image.sh $(IMAGE)

image-test: dist ## build the image with buildah, unpack it and start the server from its root
	@scripts/install-tools.sh e2e
	@scripts/install-tools.sh image
	@CARGO="$(CARGO)" scripts/test-image.sh

clients-test: dist ## the Python and the JavaScript client against the server as shipped, at pinned versions
	scripts/clients-test.sh $(TARGET)/dist/keelson

planes: dist ## what it takes to start, take, fork and move control planes as shipped, and what idle ones cost; BENCH='-objects 1000'
	@scripts/install-tools.sh bench
	cd bench && go run . -planes -server Keelson=$(TARGET)/dist/keelson $(BENCH)

helm-test: ## render the chart and check what comes out
	cd e2e && go test ./chart

cel-test: ## the expression language beside cel-go: its conformance tests, and random expressions; CEL='-seed 2 -cases 100000'
	$(CARGO) build --example cel
	cd e2e && go test ./cel -count 1 -v -args -program $(TARGET)/debug/examples/cel $(CEL)

clean: ## remove what was built (not the data)
	$(CARGO) clean
	rm -rf .tools
