package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseShare(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, text string
		want       Share
		ok         bool
	}{
		{name: "OK read-only", text: "/src:/work", want: Share{Host: "/src", Guest: "/work"}, ok: true},
		{name: "OK writable", text: "/out:/run/out/:rw", want: Share{Host: "/out", Guest: "/run/out", Writable: true}, ok: true},
		{name: "OK relative host", text: "testdata:/data", want: Share{Host: filepath.Join(here, "testdata"), Guest: "/data"}, ok: true},
		{name: "no guest", text: "/src"},
		{name: "relative guest", text: "/src:work"},
		{name: "no host", text: ":/work"},
		{name: "only rw", text: "/src:rw"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseShare(tt.text)
			if (err == nil) != tt.ok {
				t.Fatalf("error = %v, want ok = %t", err, tt.ok)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("share (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseCopy(t *testing.T) {
	got, err := ParseCopy("bin/x:/run/bin//x")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Copy{Host: "bin/x", Guest: "/run/bin/x"}, got); diff != "" {
		t.Errorf("copy (-want +got):\n%s", diff)
	}
	for _, text := range []string{"", "x", "x:", ":/x", "x:y"} {
		if _, err := ParseCopy(text); err == nil {
			t.Errorf("ParseCopy(%q) succeeded", text)
		}
	}
}

func TestDefaultsKeepWhatWasChosen(t *testing.T) {
	t.Setenv("KUBE_IPVS_CACHE", t.TempDir()) // no kernel was built there
	o := Options{IPTables: "legacy", MemoryMiB: 512, Modules: []string{}}
	o.Defaults()
	if o.IPTables != "legacy" || o.MemoryMiB != 512 || len(o.Modules) != 0 {
		t.Errorf("Defaults changed chosen values: %+v", o)
	}
	if o.Timeout != 20*time.Minute || o.CPUs != 2 || o.Accel != accelQEMU || o.Dir != "/" || o.Stdout == nil || o.Log == nil {
		t.Errorf("Defaults left something out: %+v", o)
	}
}

func TestValidateReportsAllMistakes(t *testing.T) {
	good := Options{Command: []string{"true"}, Env: []string{"A_1=x=y", "_B="}}
	good.Defaults()
	if err := good.Validate(); err != nil {
		t.Errorf("good options: %v", err)
	}
	bad := Options{IPTables: "ipfw", Accel: "hvf", Need: "pf", MemoryMiB: 1, Env: []string{"1A=x", "NOVALUE", "a-b=c"}}
	bad.Defaults()
	err := bad.Validate()
	if err == nil {
		t.Fatal("bad options passed")
	}
	for _, part := range []string{"no command", `"ipfw"`, `"hvf"`, `"pf"`, "256 MiB", `"1A=x"`, `"NOVALUE"`, `"a-b=c"`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not mention %s:\n%v", part, err)
		}
	}
}

func TestValidateAnywhereWantsPathsBelowRun(t *testing.T) {
	o := Options{Shares: []Share{{Guest: "/run/a"}, {Guest: "/src"}}, Copies: []Copy{{Guest: "/root/x"}, {Guest: "/run/y"}}}
	err := o.validateAnywhere()
	if err == nil || !strings.Contains(err.Error(), "/src, /root/x:") {
		t.Errorf("error = %v, want both paths outside of /run", err)
	}
	o = Options{Copies: []Copy{{Guest: "/run/y"}}}
	if err := o.validateAnywhere(); err != nil {
		t.Errorf("paths below /run were refused: %v", err)
	}
}
