package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A single is one test that has a guest to itself, for as long as it takes.
type single struct {
	test      string
	env       string
	scenarios bool   // the test is one of e2e/scenarios, not of e2e/packet
	share     string // directory below bin that the guest writes to, as /run/kube-ipvs/out
}

// singleLimit is the life of such a guest: a soak runs for an hour or more.
const singleLimit = "12h"

// single returns the stage of one long test.
func (c *config) single(name, about string, s single) *stage {
	run := func(ctx context.Context, r *recorder) error {
		binary, pkg, flags := "packet", "e2e/packet", ""
		if s.scenarios {
			binary, pkg = "scenarios", "e2e/scenarios"
			flags = fmt.Sprintf(" -ops %s -seed %s -for %sm -keep /run/kube-ipvs/out", or("OPS", "1000"), or("SEED", "0"), or("MINUTES", "10"))
		}
		script := fmt.Sprintf("cd /run/kube-ipvs/src/%s && %s exec /run/kube-ipvs/bin/%s.test -test.v -test.timeout 0 -test.run '^%s$'%s", pkg, s.env, binary, s.test, flags)
		p := c.pool(name, []unit{{binary + ":" + s.test, script}})
		p.limit = singleLimit
		if s.share != "" {
			dir := filepath.Join(root, "bin", s.share)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			p.shares = append(p.shares, dir+":/run/kube-ipvs/out:rw")
		}
		return p.run(ctx, r)
	}
	return &stage{name: name, about: about, cores: 1, after: []string{"guests"}, run: run}
}

// goTest runs tests of this machine that are too long for every change.
func goTest(ctx context.Context, r *recorder, env []string, args ...string) error {
	return r.command(ctx, newParser(r, r.stage, true), env, append([]string{"go", "test", "-count=1", "-vet=off", "-v"}, args...)...)
}

func (c *config) long(ctx context.Context, r *recorder) error {
	return goTest(ctx, r, nil, "-timeout", "2h", "./...")
}

func (c *config) model(ctx context.Context, r *recorder) error {
	walks := filepath.Join(root, "bin/walks")
	if err := os.MkdirAll(walks, 0o755); err != nil {
		return err
	}
	return goTest(ctx, r, nil, "-timeout", "0", "-run", "^TestModel$", "./e2e/scenarios", "-ops", or("OPS", "100000"), "-seed", or("SEED", "0"), "-keep", walks)
}

func (c *config) storm(ctx context.Context, r *recorder) error {
	env := []string{"KUBE_IPVS_STORM=" + or("FOR", "1m")}
	return goTest(ctx, r, env, "-run", "^(TestStorm|TestLongList)$", "./internal/testkit/scenario", "./internal/source/kube")
}

func (c *config) everyFault(ctx context.Context, r *recorder) error {
	pattern := "TestFaults"
	if c.pattern != "" {
		pattern += "/" + c.pattern
	}
	table := filepath.Join(root, "bin/faults.txt")
	if err := goTest(ctx, r, nil, "-timeout", "12h", "-run", pattern, "./e2e/scenarios", "-faults", or("N", "18"), "-table", table); err != nil {
		return err
	}
	text, err := os.ReadFile(table)
	r.show(string(text))
	return err
}

func (c *config) takeover(ctx context.Context, r *recorder) error {
	return r.command(ctx, newParser(r, "kube", false), []string{"KUBE_IPVS_E2E_TAKEOVER=1"}, "e2e/test-kube.sh", "TestTakeover")
}

// neighbours runs the packet tests with programs of this machine, whose root file system the guest reads.
func (c *config) neighbours(ctx context.Context, r *recorder) error {
	if err := r.command(ctx, nil, nil, "e2e/install.sh", "neighbours"); err != nil {
		return err
	}
	tests, err := testsOf("e2e/packet", func(name string) bool { return strings.HasPrefix(name, "TestNeighbour") && c.wanted(name) })
	if err != nil {
		return err
	}
	const host = "/run/kube-ipvs/host"
	var units []unit
	for _, test := range tests {
		units = append(units, packetUnit(test, "", "KUBE_IPVS_E2E_NEIGHBOURS="+host))
	}
	p := c.pool(r.stage, units)
	p.guests, p.shares = 1, append(p.shares, "/:"+host)
	return p.run(ctx, r)
}

func (c *config) runner(ctx context.Context, r *recorder) error {
	return goTest(ctx, r, []string{"KUBE_IPVS_VM=1"}, "./e2e/vm/...")
}
