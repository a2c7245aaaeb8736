# The one list of commands. `make` alone prints it.
PY := .venv/bin/python
# What pytest has compiled is kept, also where PYTHONDONTWRITEBYTECODE is set: to compile it anew is a quarter of the unit part.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(PY) -m pytest
AUDIO ?=
# Tests wait for processes more than they compute: more of them at once than there are processors.
JOBS ?= 4
# Seconds after which the tests' database cuts who idles in a transaction. 2 on a quiet machine; one that is busy stalls for longer.
export IDLE_SECONDS ?= 10
SEED ?= 7
RECORDINGS ?= 200
MINUTES ?= 60
SCALE ?= 1
FILES ?=

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(MAKEFILE_LIST))

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## .venv with what the demo needs
	@scripts/setup.sh standalone

setup-dev: ## .venv with what tests and checks need too
	@scripts/setup.sh dev

demo: setup ## the main job, to the end, on real speech (AUDIO="a.wav b.mp3" for your own)
	@$(PY) -m voxint demo $(if $(AGAIN),--again) $(AUDIO)

test: setup-dev ## unit, contract and integration tests
	@$(PYTEST) tests/unit tests/contract tests/integration -n $(JOBS) --dist worksteal

test-unit: setup-dev ## the unit tests alone
	@$(PYTEST) tests/unit -n 2 --dist worksteal

walk: setup-dev ## every state of the phase machine in a hostile world, and with each guard switched off (minutes)
	@PYTHONPATH=tests:tests/support $(PY) -m walk

mutants: setup-dev ## change one thing at a time in the turn-taking: a test must notice (minutes)
	@$(PY) scripts/mutants.py

chaos: setup-dev ## a campaign of kills on the whole product (SEED=7 RECORDINGS=200)
	@PYTHONPATH=tests/support $(PY) tests/chaos/campaign.py --seed $(SEED) --recordings $(RECORDINGS)

campaigns: setup-dev ## the campaigns of 20 seeds that have no result yet, BESIDE=2 at a time, and docs/reference/chaos.md (ANEW=--anew: all; 40 minutes)
	@PYTHONPATH=tests/support $(PY) tests/chaos/campaigns.py run $(ANEW) --beside $(or $(BESIDE),2)

test-no-wake-ups: setup-dev ## the integration tests once more with the periodic tick alone: nothing may rest on a wake-up
	@GPU_PHASE_FOLLOW_UP_SECONDS=0 $(PYTEST) tests/integration -n $(JOBS) --dist worksteal --timeout 900

test-chaos: setup-dev ## three short campaigns, and the two that must find what was broken on purpose
	@$(PYTEST) tests/chaos -n 3

test-two-hosts: setup-dev ## workers on two hosts, in network namespaces; a wire is cut (three minutes; root, or user namespaces)
	@$(PYTEST) tests/two_hosts -p no:randomly

crash: setup-dev ## the broker killed once at every point of its work, and restarted (minutes)
	@$(PY) tests/support/broker_lives.py build/crash

test-llama: setup-dev ## the broker over llama.cpp's own server with a real small model
	@$(PYTEST) tests/llama -p no:randomly

test-openapi: setup-dev ## schemathesis against the broker's OpenAPI document (EXAMPLES=100)
	@EXAMPLES=$(or $(EXAMPLES),100) $(PY) scripts/openapi_check.py

bench: setup-dev ## everything that is measured, anew: benchmarks/results.json and docs/benchmarks.md (15 minutes; PARTS="gate cli" for some)
	@PYTHONPATH=tests/support:tests/chaos $(PY) benchmarks/run.py $(PARTS)

bench-quick: setup-dev ## ratios beside those that are kept: fails where one is worse than twice as bad (2 minutes)
	@PYTHONPATH=tests/support:tests/chaos $(PY) benchmarks/run.py --quick

bench-page: setup-dev ## docs/benchmarks.md anew from benchmarks/page.md and benchmarks/results.json
	@$(PY) benchmarks/page.py

bench-broker: setup-dev ## what the broker costs over the service's own stop and start, and while it idles
	@$(PY) benchmarks/broker_switch.py 50

test-docker: setup-dev ## the shipped stack on a real Docker engine (QUICK=1: a few tests; FAILED=1: those that failed last; DOCKER_TESTS=if-possible: not where there can be none)
	@$(PYTEST) tests/docker -p no:randomly -m "$(if $(QUICK),quick,not images)" $(if $(ONLY),-k "$(ONLY)") $(if $(FAILED),--last-failed)

docker-images: setup-dev ## builds the shipped images, and uses the CPU tier's for real (CUDA=1: those for NVIDIA too)
	@CUDA=$(CUDA) $(PY) -m pytest tests/docker -p no:randomly -m images

docker-page: ## docs/reference/engine.md from what `make test-docker` wrote down
	@$(PY) scripts/engine_page.py

quality: ## word and diarization error rates on the samples, real small models (FILES="a.wav" with a.txt and a.rttm)
	@scripts/setup.sh quality
	@$(PY) benchmarks/quality.py $(FILES)

long: setup ## a recording of an hour through the whole pipeline, with the memory of each process (MINUTES=60; an hour or more)
	@$(PY) benchmarks/long_recording.py --minutes $(MINUTES)

bench-window: setup ## how busy whisper is in an audio window, on stand-ins of 6, 4 and 1 s (SCALE=1; two minutes)
	@$(PY) benchmarks/audio_window.py --scale $(SCALE)

test-browser: setup-dev ## the console in a real Chromium, over the real stack (BROWSER_TESTS=if-possible: not where there can be no Chromium)
	@scripts/browser.sh; found=$$?; \
	if [ $$found = 3 ] && [ "$(BROWSER_TESTS)" = if-possible ]; then echo "test-browser: NOT RUN, see above"; exit 0; fi; \
	[ $$found = 0 ] && timeout 1800 $(PYTEST) tests/browser -p no:randomly -o timeout=900

screenshots: setup-dev ## docs/images: each page in both schemes and at a phone's width
	@scripts/browser.sh && $(PY) scripts/screenshots.py

check: setup-dev ## format, lint, types, import rules, lock
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@UV=.venv/bin/uv scripts/lock.sh --check

sizes: setup-dev ## how big each package and wheel is, beside its budget
	@$(PY) scripts/sizes.py

fmt: setup-dev ## format the code and mend what can be mended
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

lock: setup-dev ## write requirements/*.txt anew
	@UV=.venv/bin/uv scripts/lock.sh

bench-day: setup-dev ## simulated days under other settings: build/day.json and the page's picture
	@$(PY) benchmarks/day.py

show-phases: setup-dev ## status and doctor in each phase on a running standalone, and how long a look takes: build/phases-shown
	@$(PY) scripts/show_phases.py

show-placement: setup-dev ## what a service on the CPU leads to, under each action, on a running standalone: build/placement-shown
	@$(PY) scripts/show_placement.py

docs: setup-dev ## write the pages that are made from the code anew
	@$(PY) scripts/phases_page.py
	@$(PY) scripts/settings_page.py
	@$(PY) scripts/broker_settings_page.py
	@$(PY) scripts/services_page.py

clean: ## take away what the build made
	rm -rf .venv build demo
