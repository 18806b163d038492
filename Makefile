# make test is the whole check, the same here and in CI. Everything it starts listens on loopback and ends with it.
#
#   make build                   build/caddy, the gateway without the race detector
#   make test                    everything a change must pass; prints what each part took
#   make unit | integration      one part of it; integration takes RUN=<pattern>
#   make acceptance              the part that runs the operators' cases
#   make cases FILE=… [CASE=…]   run acceptance cases of one file against the binary
#   make fuzz [FUZZTIME=60s]     every fuzz target in turn
#   make bench                   benchmarks; writes docs/benchmarks.md where the suite does
#   make deps                    install the Debian packages the tests need (root)

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

BUILD   := build
BINARY  := $(abspath $(BUILD)/caddy-race)
GO      ?= go
RUN     ?= .
FUZZTIME ?= 60s

# One set of build flags for everything that is tested, so that Caddy is compiled once.
RACE    := -race

export STEP_DIR ?= $(abspath $(BUILD)/times)

.PHONY: build test unit integration acceptance vet format deps cases fuzz bench clean $(BINARY)

build:
	$(GO) build -trimpath -o $(BUILD)/caddy ./cmd/caddy

test:
	@rm -rf $(STEP_DIR)
	@scripts/step "tools" scripts/deps
	@scripts/step "format" scripts/format
	@scripts/step "binary" $(MAKE) --no-print-directory $(BINARY)
	@scripts/step "vet" $(MAKE) --no-print-directory vet
	@scripts/step "unit" $(MAKE) --no-print-directory unit
	@scripts/step "integration" $(MAKE) --no-print-directory integration
	@scripts/step "acceptance" $(MAKE) --no-print-directory acceptance
	@scripts/step --summary

deps:
	scripts/deps

format:
	scripts/format

vet:
	$(GO) vet $(RACE) ./...

# Packages whose tests need no built binary. -shuffle=on prints its seed, so that an order can be repeated.
unit:
	$(GO) test $(RACE) -shuffle=on -timeout 15m $$($(GO) list ./... | grep -v '/integration')

integration: $(BINARY)
	GATEWAY_BINARY=$(BINARY) $(GO) test $(RACE) -shuffle=on -count=1 -timeout 40m -run '$(RUN)' \
		$$($(GO) list ./integration/... | grep -v '/integration/cases')

# The operators' cases have the machine to themselves: some of them measure.
acceptance: $(BINARY)
	GATEWAY_BINARY=$(BINARY) $(GO) test $(RACE) -shuffle=on -count=1 -timeout 20m ./integration/cases/...

$(BINARY):
	$(GO) build $(RACE) -o $@ ./cmd/caddy

cases: $(BINARY)
	@test -n "$(FILE)" || { echo "usage: make cases FILE=<file> [CASE=<id>]" >&2; exit 2; }
	GATEWAY_BINARY=$(BINARY) $(GO) run ./integration/cases/cmd/cases -file "$(FILE)" $(if $(CASE),-case "$(CASE)")

fuzz:
	scripts/fuzz $(FUZZTIME)

# Takes a quarter of an hour; needs nginx and haproxy (Debian: apt-get install nginx-light haproxy).
bench:
	@mkdir -p $(BUILD)
	$(GO) run ./cmd/xcaddy-build build --output $(BUILD)/caddy-bench
	$(GO) test -run '^$$' -bench 'Decide|Refuse|BareLimiters|Queue|ReleaseToStart' -benchmem -count 3 ./admission | tee $(BUILD)/engine.txt
	cd bench && $(GO) run . -gateway ../$(BUILD)/caddy-bench -engine ../$(BUILD)/engine.txt -output ../docs/benchmarks.md

clean:
	rm -rf $(BUILD)
