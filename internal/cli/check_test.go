package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
)

func TestCheckSaysThatModulesStay(t *testing.T) {
	if help := execute(t, "check", "--help"); !strings.Contains(help, "are loaded and stay loaded") {
		t.Errorf("not a word about modules in\n%s", help)
	}
}

// TestCheckForPrograms: JSON has the same verdicts as the table.
func TestCheckForPrograms(t *testing.T) {
	verdicts := []diagnosis.Verdict{
		{Name: "a", State: diagnosis.OK}, {Name: "b", State: diagnosis.OK, Detail: "seen"},
		{Name: "c", State: diagnosis.Warn, Detail: "d", Fix: "f"}, {Name: "e", State: diagnosis.Lacks, Detail: "d", Fix: "f"}, {Name: "g", State: diagnosis.Failed, Detail: "d", Fix: "f"},
	}
	var b bytes.Buffer
	if err := writeCheck(&b, "json", verdicts, false); err != nil {
		t.Fatal(err)
	}
	fits(t, "check", b.String())
	for _, bad := range []string{`{"items": []}`, `{"items": [{"name": "a", "state": "good"}], "fit": true}`,
		`{"items": [{"name": "a", "state": "ok", "remedy": "none"}], "fit": true}`, `{"items": [{"name": "a", "state": "missing"}], "fit": false}`, `{"items": [], "fit": true, "more": 1}`} {
		if validate(t, "check", bad) == nil {
			t.Errorf("the schema takes %s", bad)
		}
	}
}
