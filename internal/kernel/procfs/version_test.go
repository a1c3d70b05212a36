package procfs_test

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
)

func TestParseVersion(t *testing.T) {
	for release, want := range map[string]string{
		"6.1.0-18-amd64": "6.1", "4.18.0-553.el8_10.x86_64": "4.18", "5.9-custom": "5.9",
		"6.12-rc3+": "6.12", "3.10.0": "3.10", " 5.4.0-150-generic\n": "5.4", "7.2": "7.2",
		"": "", "linux": "", "6": "", "6.": "", "6.x": "", "-1.2": "", "99999999999999999999.1": "",
	} {
		v, ok := procfs.ParseVersion(release)
		got := ""
		if ok {
			got = v.String()
		}
		if got != want {
			t.Errorf("ParseVersion(%q) = %q, want %q", release, got, want)
		}
	}
}

func TestVersionBefore(t *testing.T) {
	order := []procfs.Version{{Major: 3, Minor: 10}, {Major: 4, Minor: 1}, {Major: 4, Minor: 18}, {Major: 5, Minor: 9}, {Major: 6}}
	for i, v := range order {
		for j, w := range order {
			if got, want := v.Before(w), i < j; got != want {
				t.Errorf("%s before %s = %v, want %v", v, w, got, want)
			}
		}
	}
}
