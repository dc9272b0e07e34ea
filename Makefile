# Set-up, checks and the main job. `make demo` and `make test` need nothing but Python 3.11 or newer and this file.

PYTHON ?= python3 python3.13 python3.12 python3.11
PIP := .venv/bin/python -m pip --disable-pip-version-check
COMPILE := .venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-header --no-annotate --no-emit-index-url

# Minors of Kubernetes that the plugin and the local control plane are built for: `plugin/go.mod` has the newest.
OLDER := $(patsubst plugin/go-%.mod,%,$(wildcard plugin/go-*.mod))
NEWEST := $(shell sed -nE 's,^\tk8s.io/kubernetes v([0-9]+\.[0-9]+)\..*,\1,p' plugin/go.mod)
KUBERNETES ?= $(NEWEST)
MODFILE = $(if $(filter $(NEWEST),$(KUBERNETES)),go.mod,$(if $(filter $(OLDER),$(KUBERNETES)),go-$(KUBERNETES).mod,\
	$(error KUBERNETES=$(KUBERNETES): there are $(sort $(OLDER)) and $(NEWEST))))
# `before1.37` for 1.36, and so on: see internal/compat.
TAGS = $(shell printf '%s\n' $(OLDER) $(NEWEST) | sort -V | \
	awk '$$0 == "$(KUBERNETES)" {seen = 1; next} seen {print "before" $$0}' | paste -sd, -)

# Of plugin and images: amd64 or arm64; empty: of the plugin this machine's, of images amd64.
ARCHITECTURE ?=
SUFFIX := $(if $(filter-out amd64,$(ARCHITECTURE)),-$(ARCHITECTURE))

TSC := npx --yes --package typescript@5.9.3 tsc

# Where compiled modules are not kept, every program starts three times as slowly, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo workbench notebooks learn study plugin site test core core-wasm test-core test-unit coverage test-nightly test-integration test-browser images push-images release-tools test-image test-e2e test-go test-race check-versions check-version test-versions test-version programs test-chaos lint format wheel release publish krew bench requirements clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-17s %s\n", $$1, $$2}' Makefile

demo: .venv/base core ## the main job on embedded data: training, every baseline, and an advice
	.venv/bin/steersman demo

workbench: .venv/workbench core ## JupyterLab with the tutorials, TensorBoard, the dashboard and a cluster; one Ctrl-C ends them
	@.venv/bin/steersman workbench $(OPTIONS)

notebooks: .venv/dev ## run the tutorials from start to end and write what they print (8 minutes, a control plane, Prometheus)
	.venv/bin/python -m tests.support.notebooks

learn: .venv/learn ## install what training needs: torch, TensorBoard, Optuna, PyTorch Geometric (CUDA build on Linux x86)

test: lint test-core test-unit test-integration ## lint, unit and integration tests; Go and a control plane have test-go and test-e2e

# Whoever has no Rust uses the portable core.
WITHOUT_CARGO = cargo --version 2>/dev/null | awk -F '[ .]' '$$2 > 1 || $$3 >= 85 {is_new = 1} END {exit !is_new}' || \
	{ echo "the portable core is used: there is no cargo (Rust 1.85 or newer)"; exit 0; }

core: ## compile the core, core/target/release (needs Rust 1.85 or newer)
	@$(WITHOUT_CARGO); cd core && cargo build --release

core-wasm: ## compile the portable core, plugin/pkg/core/core.wasm, as it is committed (needs Rust with its library for WebAssembly)
	core/build-wasm.sh plugin/pkg/core/core.wasm

test-core: ## the core's Rust: format, clippy, tests (needs Rust)
	@$(WITHOUT_CARGO); cd core && cargo fmt --check && cargo clippy --release --all-targets -- -D warnings && \
	cargo test --release

test-unit: .venv/dev core ## unit tests alone
	.venv/bin/pytest -n 2 tests/unit tests/contract

coverage: .venv/dev core ## percent of lines that unit tests execute
	.venv/bin/pytest -n 2 --cov=steersman --cov-report=term:skip-covered tests/unit tests/contract

test-nightly: export STEERSMAN_NIGHTLY = 1
test-nightly: test test-browser test-chaos test-e2e test-go test-race ## all tests with their longest, all cases, four times as many examples, slow pages (2 hours)

test-integration: .venv/dev ## integration tests alone
	.venv/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder tests/integration

test-browser: .venv/dev ## the dashboard's pages in Chromium (installed where it is missing)
	.venv/bin/pytest -n 2 --dist loadfile tests/browser

# Images that are not built are skipped.
test-image: .venv/dev ## run the images of `make images` as containers, build them again, push one to a registry on loopback (as root; 40 minutes)
	.venv/bin/pytest -s tests/image

# The programs that the chosen images copy; all images without a choice.
PROGRAM := build/steersman-kube-scheduler
SCHEDULERS := $(PROGRAM)$(SUFFIX) $(OLDER:%=$(PROGRAM)-%$(SUFFIX))
COPIED = $(if $(IMAGES),$(filter $(SCHEDULERS),$(IMAGES:%=build/%$(SUFFIX))),$(SCHEDULERS))

images: core $(COPIED) ## build the images as OCI layouts in build/images, without a container engine (as root; 22 minutes; ARCHITECTURE=arm64)
	python3 -m release.images build $(IMAGES) $(if $(ARCHITECTURE),--architecture $(ARCHITECTURE))

push-images: ## push the images of build/images, signed: make push-images REGISTRY=registry.example/team KEY=cosign.key
	python3 -m release.images push $(IMAGES) --registry $(REGISTRY) --key $(KEY)

release-tools: ## build crane, cosign, syft and helm in build/tools (needs Go)
	GOBIN=$(CURDIR)/build/tools CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' \
		github.com/google/go-containerregistry/cmd/crane@v0.22.1
	GOBIN=$(CURDIR)/build/tools CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' \
		github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
	GOBIN=$(CURDIR)/build/tools CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' \
		github.com/anchore/syft/cmd/syft@v1.57.1
	GOBIN=$(CURDIR)/build/tools CGO_ENABLED=0 go install -trimpath \
		-ldflags '-s -w -X helm.sh/helm/v4/internal/version.version=v4.3.1' helm.sh/helm/v4/cmd/helm@v4.3.1

$(PROGRAM)$(SUFFIX):
	$(MAKE) plugin

$(PROGRAM)-%$(SUFFIX):
	$(MAKE) plugin KUBERNETES=$*

test-e2e: .venv/dev ## tests against a running control plane (builds it once, some minutes); test-chaos has the others
	.venv/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder --ignore tests/e2e/chaos tests/e2e

programs: .venv/dev ## build what test-e2e starts into the cache: the control plane, the plugin, Helm (11 minutes, once; needs Go)
	.venv/bin/python -m tests.support.programs

# With the settings of `programs`, so that Kubernetes is compiled once; without cmd/, a third less of it.
test-go: ## the plugin's Go: format, vet, staticcheck, tests (needs Go)
	cd plugin && test -z "$$(gofmt -l .)" && packages="./internal/... ./pkg/..." && \
	export CGO_ENABLED=0 GOFLAGS="-mod=readonly -trimpath -buildvcs=false" && \
	go vet $$packages && go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 $$packages && go test $$packages

test-race: ## the plugin's Go tests with the race detector, for which all of Kubernetes is compiled again
	cd plugin && CGO_ENABLED=1 go test -race ./internal/... ./pkg/...

plugin: ## build build/steersman-kube-scheduler: kube-scheduler with steersman's plugins (needs Go; KUBERNETES=1.35 adds -1.35, ARCHITECTURE=arm64 -arm64)
	cd plugin && version=$$(go list -modfile=$(MODFILE) -m -f '{{.Version}}' k8s.io/kubernetes) && \
	CGO_ENABLED=0 GOARCH=$(ARCHITECTURE) go build -modfile=$(MODFILE) -tags=$(TAGS) -mod=readonly -trimpath \
	-buildvcs=false -o ../$(PROGRAM)$(if $(filter-out $(NEWEST),$(KUBERNETES)),-$(KUBERNETES))$(SUFFIX) -ldflags "-s -w \
	-X k8s.io/component-base/version.gitVersion=$$version -X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=$(KUBERNETES:1.%=%)" ./cmd/kube-scheduler

test-versions: .venv/dev ## for each minor of Kubernetes: build control plane and plugin, Go tests, some end-to-end tests
	for minor in $(OLDER) $(NEWEST); do $(MAKE) test-version KUBERNETES=$$minor || exit 1; done

check-versions: build/typecheck ## type errors of the Go programs with older minors of Kubernetes, without compiling these (needs Go)
	for minor in $(OLDER); do $(MAKE) check-version KUBERNETES=$$minor || exit 1; done

check-version: build/typecheck ## the same for one minor
	for folder in plugin controlplane; do \
		(cd $$folder && CGO_ENABLED=0 ../build/typecheck -modfile=$(MODFILE) -tags=$(TAGS) ./...) || exit 1; done

build/typecheck: tests/support/typecheck/main.go tests/support/typecheck/go.mod
	cd tests/support/typecheck && go build -o ../../../build/typecheck .

# With the settings of the builds before it, so that Kubernetes is not compiled again.
test-version: export STEERSMAN_TEST_KUBERNETES = $(KUBERNETES)
test-version: .venv/dev ## the same for one minor: make test-version KUBERNETES=1.34
	.venv/bin/python -m tests.support.programs
	cd plugin && export CGO_ENABLED=0 GOFLAGS="-modfile=$(MODFILE) -tags=$(TAGS) -trimpath -buildvcs=false" && \
	go vet ./... && go test ./...
	.venv/bin/pytest -m minors tests/e2e

test-chaos: .venv/dev ## the end-to-end tests in which servers die, answers get lost and nodes vanish
	.venv/bin/pytest tests/e2e/chaos

lint: .venv/dev ## ruff, mypy --strict, the direction of imports, types of the scripts of pages
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/mypy -p studies -p benchmarks -p website -p release
	.venv/bin/lint-imports
	@if command -v npx >/dev/null; then $(TSC) -p src/steersman/live/dashboard/jsconfig.json && $(TSC) -p website/player/jsconfig.json; \
	else echo "there is no Node.js: the types of the pages' scripts are not checked"; fi

format: .venv/dev ## rewrite the code as lint wants it
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

site: .venv/wheel ## build build/site: the documentation as a site, from docs/, the code and the results of studies
	.venv/bin/python -m website

wheel: site core ## build dist/*.whl for this architecture, with the site and the native core
	.venv/bin/python -m build --wheel --no-isolation

release: site core $(COPIED) ## make dist/VERSION: wheel, sdist, images, chart, krew plugin, notes, checksums (as root)
	.venv/bin/python -m release build $(IMAGES) $(if $(URL),--url $(URL))

publish: .venv/dev ## publish dist/VERSION, signed: make publish REGISTRY=registry.example/team KEY=cosign.key INDEX=URL
	.venv/bin/python -m release push --registry $(REGISTRY) --key $(KEY) $(if $(INDEX),--package-index $(INDEX))

krew: ## build build/kubectl-steersman.zip, the archive of deploy/krew/steersman.yaml, and print its SHA-256
	@python3 -m release.krew build/kubectl-steersman.zip

bench: .venv/dev ## measure, side by side, what benchmarks/ claims
	.venv/bin/python -m benchmarks

study: .venv/dev ## train and measure what docs/results.md publishes (hours; what is finished stays finished)
	.venv/bin/python -m studies

requirements: .venv/dev ## pin the newest versions that pyproject.toml allows
	$(COMPILE) --extra all --extra dev --group build --extra portable pyproject.toml -o requirements/dev.txt
	$(COMPILE) --constraint requirements/dev.txt --extra portable pyproject.toml -o requirements/base.txt
	$(COMPILE) --constraint requirements/dev.txt --extra all --extra portable pyproject.toml -o requirements/learn.txt
	$(COMPILE) --constraint requirements/dev.txt --extra workbench --extra portable pyproject.toml -o requirements/workbench.txt
	$(COMPILE) --constraint requirements/dev.txt --extra wheel --extra portable pyproject.toml -o requirements/wheel.txt
	$(COMPILE) --constraint requirements/dev.txt --group build -o requirements/build.txt

clean: ## remove .venv and everything that was built
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# The stamps .venv/base and .venv/dev say which requirements are installed; a second call finds them and starts at once.
.venv/base: requirements/base.txt requirements/build.txt pyproject.toml
	@if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then \
		for python in $(PYTHON); do \
			if $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
				echo "creating .venv with $$($$python --version) (about 5 s)"; \
				$$python -m venv --clear .venv && break || exit 1; \
			fi; \
		done; \
	fi
	@if [ ! -x .venv/bin/python ]; then \
		echo "steersman needs Python 3.11 or newer with its venv module (apt-get install python3-venv); tried: $(PYTHON)" >&2; \
		exit 1; \
	fi
	@echo "installing the base requirements (about 15 s, 60 MB to download, 220 MB of disk)"
	@$(PIP) install --quiet --require-hashes -r requirements/base.txt -r requirements/build.txt
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@.venv/bin/steersman --version
	@touch $@

.venv/learn: .venv/base requirements/learn.txt
	@echo "installing what training needs (about a minute, 3 GB to download: torch; 6 GB of disk)"
	@.venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes -r requirements/learn.txt
	@touch $@

.venv/workbench: .venv/base requirements/workbench.txt
	@echo "installing what the workbench needs (about a minute, 3 GB to download: torch; 7 GB of disk)"
	@.venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes -r requirements/workbench.txt
	@touch $@

# Without torch, which documentation needs not.
.venv/wheel: .venv/base requirements/wheel.txt
	@echo "installing what a wheel is built with (about 10 s)"
	@.venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes -r requirements/wheel.txt
	@touch $@

.venv/dev: .venv/base requirements/dev.txt
	@echo "installing the development requirements (about 2 minutes, 3 GB to download: torch; 7 GB of disk)"
	@.venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes -r requirements/dev.txt
	@touch $@
