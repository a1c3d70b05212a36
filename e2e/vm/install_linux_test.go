package vm

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const installScript = "../install.sh"

func TestInstallRefusesAnUnknownGroup(t *testing.T) {
	out, err := exec.Command("bash", installScript, "everything").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "unknown group everything; the groups are: tools vm") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestInstallWithoutAptGet hides commands behind an unusable file, in a mount namespace of its own.
func TestInstallWithoutAptGet(t *testing.T) {
	needNamespaces(t)
	script, err := filepath.Abs(installScript)
	if err != nil {
		t.Fatal(err)
	}
	hide := `for name in apt-get ipset conntrack; do
		for path in $(type -aP "$name"); do mount --bind /dev/null "$path"; done
	done
	bash ` + quote(script) + ` tools`
	status, out := inNetns(t, Options{}, "bash -c "+quote(hide))
	if status != 1 {
		t.Errorf("status %d, want 1", status)
	}
	for _, want := range []string{"no apt-get", "ipset                usually in package ipset", "conntrack            usually in package conntrack-tools"} {
		if !strings.Contains(out, want) {
			t.Errorf("output does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "iproute") {
		t.Errorf("output names what is there:\n%s", out)
	}
}
