package main

import (
	"context"
	"errors"
	"slices"
)

// nftTests are packet tests that use no tool of iptables or ipset. The others compare what these tools print, or imitate a program
// that uses them.
var nftTests = []string{
	"TestNFTablesTruthTable", "TestNFTablesTruthUnderOtherSettings", "TestNFTablesWithoutModules", "TestNFTablesWithoutTools",
	"TestNFTablesRepairs", "TestNFTablesTakeover", "TestNFTablesFirewalls", "TestNFTablesWords", "TestNFTablesDropsAreCounted",
	"TestSourceRanges", "TestSourceRangesOfTwoServicesDoNotMix", "TestChangingSourceRangesLeavesNoGap",
	"TestAffinityKeepsAClientOnOneBackend", "TestAffinityEnds", "TestAffinityEverywhere", "TestAffinityRoll",
	"TestDrainEnds", "TestDrainSurvivesACrash", "TestEndsInEveryState", "TestRollingUpdate", "TestRestartsFailNoRequest", "TestKilledAtRandomMoments",
	"TestUDPGoesWhereItsBackendIs", "TestWhatIsNotServedIsRefused", "TestVIPAnswersPing", "TestConnectionsSurviveCapture",
}

// withoutTool takes the tool of nftables out of a guest.
const withoutTool = "rm -f $(command -v nft) || exit 1\n"

// nftables runs ipvs mode on a kernel that has neither ipset nor iptables. In the end it does so in a guest without the tool of nftables.
func (c *config) nftables(ctx context.Context, r *recorder) error {
	if err := r.command(ctx, nil, nil, "bin/vmrun", "-prepare", "-accel", nftKernel); err != nil {
		return err
	}
	var units []unit
	for _, test := range nftTests {
		if c.wanted(test) { // the agent takes nftables by itself
			units = append(units, unit{"packet:" + test, testScript("packet", "e2e/packet", "^"+test+"$", "")})
		}
	}
	units = slices.Concat(units, c.scenarioTest("TestNFTOnKernel"))
	if c.wanted("Contract") {
		for _, name := range []string{"nft", "nftrules"} {
			pkg := map[string]string{"nft": "internal/kernel/nft", "nftrules": "internal/dataplane/ipvs/nftrules"}[name]
			units = append(units, unit{name + ":kernel", testScript(name, pkg, ".", "")})
		}
	}
	c.sort(r.stage, units)
	err := c.nftPool(r.stage, units).run(ctx, r)
	if c.wanted("TestNFTablesTruthTable") {
		without := unit{"packet:without-nft", withoutTool + testScript("packet", "e2e/packet", "^TestNFTablesTruthTable$", "")}
		err = errors.Join(err, c.nftPool(r.stage+"-bare", []unit{without}).run(ctx, r))
	}
	if c.pattern == "" {
		err = errors.Join(err, r.command(ctx, nil, []string{"KERNEL=" + nftKernel, "RULES=nftables"}, "e2e/demo.sh"))
	}
	return err
}

// nftPool returns guests with that kernel.
func (c *config) nftPool(name string, units []unit) *pool {
	p := c.pool(name, units)
	p.accel = nftKernel
	return p
}
