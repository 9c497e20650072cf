# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Every target sets up what it needs: virtual environments below the checkout, stamped, so that later calls are quick.
# MUSTER_PYTHON names the Python to build them with; ARGS is handed to the tool that a target calls.

SHELL := bash
.DEFAULT_GOAL := help

DEV := .venv/bin/python
ARGS ?=
export MUSTER_TORCH_PYTHON ?= $(CURDIR)/.venv-torch/bin/python
export MUSTER_LAUNCHERS_PYTHON ?= $(CURDIR)/.venv-launchers/bin/python
export MUSTER_PROGRAMS_PYTHON ?= $(CURDIR)/.venv-programs/bin/python
export MUSTER_SERVICES_PYTHON ?= $(CURDIR)/.venv-services/bin/python

# tools/python.sh finds an interpreter, tools/venv.py makes the environments and does nothing when they are up to date.
define ensure
@base="$$(tools/python.sh)" && "$$base" -m tools.venv $(1)
endef

.PHONY: help demo programs test test-all money test-gpu bench bench-gpu lab drill e2e venv venv-torch venv-launchers venv-programs venv-services venv-core220 venv-core222 \
  lint unit sanity build docs clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: venv venv-torch ## train a small model on two local nodes, kill a rank, see it resume, print the report's path
	@$(DEV) -m tools.demo $(ARGS)

test: venv ## all checks (ARGS="--only unit,mypy" for some, ARGS=--list for their names)
	@$(DEV) -m tools.check $(ARGS)

test-all: venv venv-core222 ## also what make test leaves out
	@MUSTER_TEST_ALL=1 $(DEV) -m tools.check --all $(ARGS)

bench: venv venv-torch ## performance ratios with their gates, each line ends in PASS or FAIL (ARGS="hosts" for a part); installs what it needs
	@MUSTER_REQUIRE_LAB=1 $(DEV) -m tools.bench $(ARGS)

money: venv venv-services ## drawn faults over rent, heal, reap and teardown, judged by what the provider has (ARGS="-k '7 or 8'"); half an hour
	@MUSTER_TEST_ALL=1 $(DEV) -m pytest -p no:cacheprovider -n 2 tests/faults/test_lying_listings.py tests/e2e/test_money_trial.py $(ARGS)

test-gpu: venv venv-torch ## what only a machine with an NVIDIA GPU shows: facts, training, kills, failures
	@$(DEV) -m pytest -p no:cacheprovider tests/gpu $(ARGS)

bench-gpu: venv venv-torch ## the first step and restarts on one GPU, beside torchrun typed by hand
	@$(DEV) -m tools.bench_gpu $(ARGS)

lab: venv venv-torch ## checks on a cluster of local containers (root, podman, Linux)
	@$(DEV) -m tools.lab $(ARGS)

programs: venv venv-programs ## real programs of other projects: trained, killed, resumed, fetched (ARGS="-k trl"); half an hour, needs GitHub
	@$(DEV) -m tools.programs $(ARGS)

drill: venv venv-torch ## faults on that cluster while a job trains; writes the table of the docs (ARGS="--repetitions 5")
	@$(DEV) -m tools.drill kubernetes $(ARGS)

e2e: venv ## the demo inventory from bootstrap to report
	@$(DEV) -m tools.check --only e2e

lint: venv ## words and names with their figures, style, types, layers, documentation
	@$(DEV) -m tools.words
	@$(DEV) -m tools.check --only ruff,format,yamllint,changelog,mypy,layers,docs-lint,ansible-lint

unit: venv ## unit tests with coverage
	@$(DEV) -m tools.check --only unit

sanity: venv ## ansible-test sanity on a physical copy
	@$(DEV) -m tools.check --only sanity

build: venv ## the archive for ansible-galaxy, installed and looked at from outside
	@$(DEV) -m tools.check --only artifact,ansible-doc,syntax

docs: venv ## the documentation site below build/docs
	@$(DEV) -m tools.docs $(ARGS)

venv: ## .venv: development tools, the collection linked into it
	$(call ensure,dev)

venv-torch: ## .venv-torch: PyTorch
	$(call ensure,torch)

venv-launchers: venv-torch ## .venv-launchers: Accelerate, DeepSpeed, peft, transformers and mpi4py over .venv-torch
	$(call ensure,launchers)

venv-programs: venv-launchers ## .venv-programs: diffusers, Lightning, trl, Orbax and what torchtune imports, over .venv-launchers
	$(call ensure,programs)

venv-services: ## .venv-services: a controller with botocore and hvac, SeaweedFS and OpenBao for tests
	$(call ensure,services)

venv-core220: ## .venv-core220: ansible-core 2.20
	$(call ensure,core220)

venv-core222: ## .venv-core222: the ansible-core 2.22 pre-release
	$(call ensure,core222)

clean: ## remove what checks and tools made
	rm -rf build dist .cache .ansible .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

distclean: clean ## also the virtual environments
	rm -rf .venv .venv-torch .venv-launchers .venv-programs .venv-services .venv-core220 .venv-core222
