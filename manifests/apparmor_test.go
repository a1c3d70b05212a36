package manifests_test

import (
	"os/exec"
	"testing"
)

// The profile is what AppArmor's own parser understands; no kernel is asked.
func TestAppArmorProfileParses(t *testing.T) {
	parser, err := exec.LookPath("apparmor_parser")
	if err != nil {
		t.Skipf("package apparmor has the parser: %v", err)
	}
	if out, err := exec.Command(parser, "--skip-kernel-load", "--skip-cache", "apparmor/kube-ipvs").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
