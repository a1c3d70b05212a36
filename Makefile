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
KUSTOMIZE := sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
IMAGE     ?= kube-ipvs:dev
PLATFORMS ?=
PUSH      ?=

.PHONY: help build reproducible sbom man demo test test-unit race test-vm e2e-iptables e2e-kube e2e-takeover recordings faults e2e-kills e2e-million soak model model-vm storm bench-memory bench-iptables bench-peers bench-limits bench-looks bench-fleet cover bench bench-micro profile alerts dashboard fuzz golden lint verify vuln image manifests clean

help: ## this list
	@echo 'kube-ipvs: Kubernetes Services on the kernel'"'"'s IP Virtual Server'
	@echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/kube-ipvs, static
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o bin/kube-ipvs ./cmd/kube-ipvs

reproducible: ## two builds in two places have the same bytes; FRESH=1 compiles everything twice
	@FRESH='$(FRESH)' e2e/reproducible.sh

sbom: build ## bin/kube-ipvs.cdx.json, what the program is made of, as CycloneDX
	@e2e/sbom.sh bin/kube-ipvs '$(VERSION)'

man: build ## manual pages of all verbs in bin/man, from what --help says
	@rm -rf bin/man
	@bin/kube-ipvs man bin/man

demo: ## see it work: agent, backends and curl, on this machine or in a throw-away VM; MODE=iptables without IPVS
	@MODE='$(MODE)' e2e/demo.sh

test: ## every level this machine can run; installs what it needs
	@e2e/install.sh
	@echo 'test: 1/4 rooms and scenarios on fakes, kernel rooms on this kernel, race detector on'
	@$(MAKE) race
	@echo 'test: 2/4 each scenario again, with kernel calls of every room failing in every way, and with crashes at them'
	$(GO) test ./e2e/scenarios
	@echo 'test: 3/4 iptables mode, with packets, by both kinds of iptables'
	@$(MAKE) e2e-iptables
	@echo 'test: 4/4 the same contracts and scenarios, and packets, on a kernel with IPVS'
	@$(MAKE) test-vm

test-unit: ## rooms on fakes: no root, no network, two minutes
	$(GO) test -short ./cmd/... ./internal/... ./ipset/... ./scheduler/... ./e2e/scenarios/...

race: ## all Go tests under the race detector; says what was skipped and why
	@mkdir -p bin
	@echo '$(GO) test -race -short ./... (all of it in bin/race.log)'
	@$(GO) test -race -short -v ./... >bin/race.log 2>&1 || \
		{ grep -vE '^ *(=== |--- (PASS|SKIP))' bin/race.log | grep -v '^?' | tail -n 300; \
		  echo; echo 'race: what the failed tests wrote:'; awk -f e2e/failed.awk bin/race.log | tail -n 150; \
		  echo "race: FAILED: $$(e2e/failed.sh bin/race.log)"; exit 1; }
	@grep -E '^ok ' bin/race.log
	@awk -f e2e/skipped.awk bin/race.log
	@echo "race: $$(grep -cE '^ *--- PASS:' bin/race.log) passed, 0 failed, $$(grep -cE '^ *--- SKIP:' bin/race.log || true) skipped"

test-vm: ## contracts, scenarios and packets on a kernel with IPVS
	@e2e/test-vm.sh

e2e-iptables: ## iptables mode with packets, natively where the kernel has iptables
	@e2e/test-iptables.sh

e2e-kube: ## a real API server, the agent, packets; builds the control plane once
	@e2e/test-kube.sh

e2e-takeover: ## kube-proxy in each mode, kube-ipvs, and back, with 1,000 Services under load
	KUBE_IPVS_E2E_TAKEOVER=1 e2e/test-kube.sh TestTakeover

recordings: ## what the verbs print, run in the VM, into e2e/recordings and README; look at the diff
	KUBE_IPVS_E2E_RECORD=1 e2e/test-vm.sh packet TestRecordings
	KUBE_IPVS_E2E_RECORD=1 $(GO) test -count=1 -run TestReadmeRecordings ./cmd/kube-ipvs

faults: ## every way to fail x every kernel room x every scenario: what was tried, and survived; N=18 a scenario, RUN= one
	@mkdir -p bin
	$(GO) test -count=1 -timeout 3h -run 'TestFaults$(if $(RUN),/$(RUN))' ./e2e/scenarios -faults $(or $(N),18) -table $(CURDIR)/bin/faults.txt
	@cat bin/faults.txt

e2e-kills: ## fifty times kill -9 during churn (make test has twelve)
	KUBE_IPVS_E2E_KILLS=50 e2e/test-vm.sh packet TestKilledAtRandomMoments

e2e-million: ## UDP that goes on beside a million flows of others
	KUBE_IPVS_E2E_MILLION=1 e2e/test-vm.sh packet TestUDPBesideAMillionFlows

soak: ## FOR=1h of churn, traffic, faults and restarts in the VM: what grows, and who noticed
	@KUBE_IPVS_E2E_SOAK=$(or $(FOR),1h) KUBE_IPVS_E2E_MINUTES=$${KUBE_IPVS_E2E_MINUTES:-90} e2e/test-vm.sh packet '^TestSoak$$'
	@sed -n '/what happened/,/^--- /p' bin/vm-packet.log

model: ## random walks on fakes against a fresh compile; OPS=1000000 operations, SEED= of the first walk repeats
	@mkdir -p bin/walks
	$(GO) test -count=1 -timeout 0 -v -run '^TestModel$$' ./e2e/scenarios -ops $(or $(OPS),100000) -seed $(or $(SEED),0) -keep '$(CURDIR)/bin/walks'

model-vm: ## the same with the program on a kernel with IPVS, for MINUTES=10 or until OPS=1000 are done
	@OPS='$(OPS)' SEED='$(SEED)' MINUTES='$(MINUTES)' e2e/test-vm.sh model
	@grep -E 'so far|model test' bin/vm-model.log | tail -n 1

storm: ## FOR=1m of 10,000 changes of slices a second from an API server, on fakes; and a list of 50 MB
	@KUBE_IPVS_STORM=$(or $(FOR),1m) $(GO) test -count=1 -v -run '^TestStorm$$' ./internal/testkit/scenario
	@KUBE_IPVS_STORM=1 $(GO) test -count=1 -v -run '^TestLongList$$' ./internal/source/kube

bench-memory: ## RSS and live heap with 10,000 Services x 10 endpoints of a real API server
	@KUBE_IPVS_E2E_MEMORY=$${KUBE_IPVS_E2E_MEMORY:-10000x10} e2e/test-kube.sh TestMemory

bench-iptables: ## kube-ipvs against kube-proxy in iptables mode: time, bytes, processes; COST=500x10, COST_BACKEND=legacy
	@KUBE_IPVS_E2E_COST=$(or $(COST),5000x10) KUBE_IPVS_E2E_COST_BACKEND=$(COST_BACKEND) e2e/test-kube.sh TestIPTablesCost

bench-peers: ## kube-ipvs and kube-proxy in each mode, measured from outside; N=100,1000 CANDIDATES= PARTS= SAMPLES=
	@N='$(N)' CANDIDATES='$(CANDIDATES)' PARTS='$(PARTS)' SAMPLES='$(SAMPLES)' e2e/bench-peers.sh

bench-limits: ## what limits of the kernel cost, with and without what goes around them; in throw-away VMs
	@e2e/bench-limits.sh

bench-looks: ## what show, explain, diff, top and a scrape cost with N=10000 Services, and what they cost the loop
	KUBE_IPVS_E2E_SERVICES=$(or $(N),10000) e2e/test-vm.sh packet TestLooksSlowNobody
	@grep -A 12 'Services of 10 endpoints' bin/vm-packet.log

bench-fleet: ## what thousands of agents cost an API server, from what some do; N=1000,5000 K=1,10,50 KINDS= RATE= FLEET= RATES=
	@N='$(N)' K='$(K)' KINDS='$(KINDS)' RATE='$(RATE)' FLEET='$(FLEET)' RATES='$(RATES)' e2e/bench-fleet.sh

cover: ## how much of each room its own tests run, lowest first; bin/cover.out for go tool cover
	@mkdir -p bin
	@$(GO) test -short -coverprofile bin/cover.out ./cmd/... ./internal/... ./ipset/... ./scheduler/... >bin/cover.log 2>&1 || \
		{ grep -vE '^ok |no test files' bin/cover.log | tail -n 100; echo 'cover: FAILED (bin/cover.log)'; exit 1; }
	@awk -f e2e/cover.awk bin/cover.out

bench: ## what one change costs, and how that does not grow
	$(GO) test -run '^$$' -bench . -benchtime 300ms ./internal/... ./cmd/... ./ipset/...

bench-micro: ## those that need no kernel, in a minute, against the last run on this machine
	@KUBE_IPVS_CACHE='$(CACHE)' e2e/benchstat.sh

profile: ## CPU, heap, block and trace of start, churn and idle in bin/profile; N=10000 Services, MODE=iptables without IPVS
	@N='$(N)' MODE='$(MODE)' e2e/profile.sh

# Most of what these tests read is outside of their module, where the cache of go test does not look.
alerts: ## dashboard and alert rules against Prometheus' parser and engine, which are a module of their own
	cd e2e/alerts && $(GO) vet ./... && $(GO) test -count=1 ./...

dashboard: ## its picture in manifests/monitoring, of a busy node in the VM; KEEP=1 draws what was scraped last
	@e2e/install.sh browser
	$(if $(KEEP),,KUBE_IPVS_E2E_SCRAPES=1 e2e/test-vm.sh packet TestDashboardData)
	cd e2e/alerts && $(GO) run ./evaluate >../../bin/dashboard.json
	e2e/dashboard/draw.sh manifests/monitoring/dashboard.png

fuzz: ## each fuzz target for FUZZTIME (10s), one line each; TARGET= chooses some
	@FUZZTIME='$(FUZZTIME)' e2e/fuzz.sh $(TARGET)

golden: ## rewrite the expectations of the scenarios; look at the diff
	$(GO) test -run TestOnFakes ./e2e/scenarios -update

$(CACHE)/bin/golangci-lint-v2.15.0:
	@echo 'lint: building golangci-lint v2.15.0, once'
	@mkdir -p $(@D)
	@GOBIN=$(@D)/new $(GO) install $(LINT)
	@mv $(@D)/new/golangci-lint $@ && rmdir $(@D)/new

lint: $(CACHE)/bin/golangci-lint-v2.15.0 ## style and the import law, pinned
	$< run ./...

verify: ## nothing is unformatted, untidy, or broken on another system
	@test -z "$$(gofmt -l .)" || { echo 'verify: gofmt wants:'; gofmt -l .; exit 1; }
	$(GO) vet ./...
	GOOS=darwin $(GO) vet ./cmd/... ./internal/... ./ipset/... ./scheduler/...
	$(GO) mod tidy -diff
	$(GO) mod verify

vuln: ## known vulnerabilities, where the data can be had
	@if out=$$($(GO) run $(VULN) ./... 2>&1); then echo "$$out" | tail -3; \
	elif grep -qE 'no such host|connection refused|i/o timeout|dial tcp' <<<"$$out"; then echo 'vuln: skipped: the vulnerability database cannot be reached from here'; \
	else echo "$$out"; exit 1; fi

image: ## container image IMAGE (kube-ipvs:dev) for PLATFORMS (this one); PUSH=1 pushes it
	@IMAGE='$(IMAGE)' PLATFORMS='$(PLATFORMS)' PUSH='$(PUSH)' VERSION='$(VERSION)' manifests/image/build.sh

$(CACHE)/bin/kustomize-v5.8.1:
	@echo 'manifests: building kustomize v5.8.1, once'
	@mkdir -p $(@D)
	@GOBIN=$(@D)/new $(GO) install $(KUSTOMIZE)
	@mv $(@D)/new/kustomize $@ && rmdir $(@D)/new

manifests: $(CACHE)/bin/kustomize-v5.8.1 ## write manifests/install.yaml anew from manifests/base
	@mkdir -p bin
	@{ echo '# Made from manifests/base by make manifests. Change it there.'; $< build manifests/base; } >bin/install.yaml
	@mv bin/install.yaml manifests/install.yaml

clean: ## remove what was built here; the caches stay
	rm -rf bin
