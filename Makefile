# kube-ipvs. Bare `make` explains itself.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO        ?= go
LINT      := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VULN      := golang.org/x/vuln/cmd/govulncheck@v1.1.4
CACHE     ?= $(or $(KUBE_IPVS_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kube-ipvs)
FUZZTIME  ?= 10s
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT    ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE      ?= $(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
LDFLAGS    = -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
# The last one that makes an rpm with a library that the module proxy serves.
NFPM      := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
HELM      := helm.sh/helm/v4/cmd/helm@v4.3.2
ACTIONS   := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
CRANE     := github.com/google/go-containerregistry/cmd/crane@v0.22.1
KUSTOMIZE := sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
IMAGE     ?= kube-ipvs:dev
PLATFORMS ?=
PUSH      ?=
WHAT      ?=
WITH      ?=
export KERNEL RUN RACE

##@ Start here

help: ## this list
	@echo 'kube-ipvs: Kubernetes Services on the kernel'"'"'s IP Virtual Server'
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo 'Without WHAT= the choices are listed. KERNEL=uml|uml-nft|qemu|kvm chooses the kernel of guests, RUN=REGEXP the tests.'

build: ## bin/kube-ipvs, static
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/kube-ipvs ./cmd/kube-ipvs

demo: ## agent, backends and curl, here or in a throw-away VM; MODE=iptables without IPVS, RULES=nftables
	@MODE='$(MODE)' RULES='$(RULES)' e2e/demo.sh

##@ Test

test: ## every level that can find a defect in a change: half an hour; installs what it needs
	@e2e/suite.sh test $(WITH)

test-unit: ## packages on fakes: no root, no network, two minutes
	$(GO) test -short ./cmd/... ./internal/... ./ipset/... ./scheduler/... ./e2e/scenarios/...

test-all: ## every level in its full size, hours: before a release
	@e2e/suite.sh all
	@e2e/suite.sh -race packets iptables

e2e: ## one level of make test: WHAT=packets|contracts|iptables|race|faults|kube, RUN=TestAffinity
	@e2e/suite.sh $(or $(WHAT),-list)

stress: ## one long test: WHAT=kills|million|soak|storm|takeover|model|mutants|...
	@e2e/suite.sh $(or $(WHAT),-list)

e2e-cluster: $(CACHE)/bin/helm-v4.3.2 ## real kubelets: install.yaml on three nodes; half an hour to build at first. RUN=kubelet KEEP=1 NODES=1 OUTAGE=5m
	@$(MAKE) image IMAGE=kube-ipvs:dev
	@$(GO) build -trimpath -o bin/nodes ./e2e/nodes
	@bin/nodes -run '$(RUN)' -helm $< $(if $(KEEP),-keep) $(if $(NODES),-nodes $(NODES)) $(if $(OUTAGE),-outage $(OUTAGE))

fuzz: ## each fuzz target for FUZZTIME (10s); TARGET=FuzzAnswer chooses some
	@FUZZTIME='$(FUZZTIME)' e2e/fuzz.sh $(TARGET)

golden: ## rewrite expectations: WHAT=scenarios|recordings|dashboard; look at the diff
	@e2e/golden.sh $(WHAT)

##@ Check

verify: ## sources are formatted, vetted on Linux and Darwin, modules tidy
	@test -z "$$(gofmt -l .)" || { echo 'verify: gofmt wants:'; gofmt -l .; exit 1; }
	$(GO) vet ./...
	GOOS=darwin $(GO) vet ./cmd/... ./internal/... ./ipset/... ./scheduler/...
	$(GO) mod tidy -diff
	$(GO) mod verify

lint: $(addprefix $(CACHE)/bin/,golangci-lint-v2.15.0 helm-v4.3.2 actionlint-v1.7.12) ## style, import rules, language, the chart, the workflows; all tools pinned
	$(CACHE)/bin/golangci-lint-v2.15.0 run ./...
	$(GO) test -timeout 1h ./e2e/prose
	$(CACHE)/bin/helm-v4.3.2 lint --strict --quiet manifests/chart
	$(CACHE)/bin/actionlint-v1.7.12

vuln: ## known vulnerabilities, where the database can be reached
	@if out=$$({ $(MAKE) $(CACHE)/bin/govulncheck-v1.1.4 && $(CACHE)/bin/govulncheck-v1.1.4 ./...; } 2>&1); then echo "$$out" | tail -3; \
	elif grep -qE 'no such host|connection refused|connection reset|i/o timeout|TLS handshake timeout|dial tcp' <<<"$$out"; then echo 'vuln: skipped: the vulnerability database cannot be reached from here'; \
	else echo "$$out"; exit 1; fi

##@ Measure

bench: ## WHAT=micro|growth|peers|iptables|memory|limits|queries, or all of one change's cost
	@e2e/bench.sh $(WHAT)

cover: ## how much of each package its own tests run, lowest first
	@mkdir -p bin
	@$(GO) test -short -coverprofile bin/cover.out ./cmd/... ./internal/... ./ipset/... ./scheduler/... >bin/cover.log 2>&1 || \
		{ grep -vE '^ok |no test files' bin/cover.log | tail -n 100; echo 'cover: FAILED (bin/cover.log)'; exit 1; }
	@awk -f e2e/cover.awk bin/cover.out

stats: ## sizes, functions, types, calls against the order of files, the path of one change, limits; FROM=directory of another commit
	@$(GO) run ./e2e/stats $(FROM)

profile: ## CPU, heap, block and trace in bin/profile; N=10000 Services, MODE=iptables without IPVS
	@N='$(N)' MODE='$(MODE)' e2e/profile.sh

##@ Release

release: $(CACHE)/bin/nfpm-v2.45.2 ## archives, deb, rpm, SBOM, checksums, twice; the deb tried in a guest. SNAPSHOT=1 ARCHES=amd64
	@SNAPSHOT='$(SNAPSHOT)' ARCHES='$(ARCHES)' GUEST='$(GUEST)' VERSION='$(VERSION)' COMMIT='$(COMMIT)' DATE='$(DATE)' LDFLAGS='$(LDFLAGS)' NFPM='$(abspath $<)' e2e/release.sh

image: $(if $(PUSH),$(CACHE)/bin/crane-v0.22.1) ## container image IMAGE for PLATFORMS (this one) in bin/image.tar, without a daemon; PUSH=1 pushes it
	@IMAGE='$(IMAGE)' PLATFORMS='$(PLATFORMS)' PUSH='$(PUSH)' VERSION='$(VERSION)' COMMIT='$(COMMIT)' DATE='$(DATE)' LDFLAGS='$(LDFLAGS)' CACHE='$(CACHE)' CRANE='$<' manifests/image/build.sh

manifests: $(CACHE)/bin/kustomize-v5.8.1 ## what is made of others: install.yaml, alerts as an object
	@mkdir -p bin
	@{ echo '# Made from manifests/base by make manifests. Change it there.'; $< build manifests/base; } >bin/install.yaml
	@mv bin/install.yaml manifests/install.yaml
	@cp manifests/monitoring/kube-ipvs.rules.yaml manifests/chart/files/
	@{ sed '/^spec:$$/q' manifests/components/monitoring/prometheusrule.yaml; sed 's/^./  &/' manifests/monitoring/kube-ipvs.rules.yaml; } >bin/prometheusrule.yaml
	@mv bin/prometheusrule.yaml manifests/components/monitoring/prometheusrule.yaml

clean: ## remove what was built here; the caches stay
	rm -rf bin

# Tools that are built once into the cache: $(CACHE)/bin/NAME-VERSION.
checkers: $(CACHE)/bin/golangci-lint-v2.15.0 $(CACHE)/bin/govulncheck-v1.1.4 $(CACHE)/bin/helm-v4.3.2 $(CACHE)/bin/actionlint-v1.7.12

define tool
$$(CACHE)/bin/$(notdir $(patsubst %/v5,%,$(firstword $(subst @, ,$(1)))))-$(lastword $(subst @, ,$(1))):
	@echo 'building $(1), once'
	@mkdir -p $$(@D)
	@CGO_ENABLED=0 GOBIN=$$@.new $$(GO) install $(1)
	@mv $$@.new/* $$@ && rmdir $$@.new
endef
$(foreach module,$(LINT) $(VULN) $(KUSTOMIZE) $(NFPM) $(HELM) $(ACTIONS) $(CRANE),$(eval $(call tool,$(module))))

.PHONY: help build demo test test-unit test-all e2e e2e-cluster stress fuzz golden verify lint vuln bench cover profile release image manifests clean checkers

-include e2e/old-targets.mk
