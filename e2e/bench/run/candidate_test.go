package run

import (
	"strings"
	"testing"
	"time"
)

func TestKnownCandidatesCanBeFilledIn(t *testing.T) {
	values := map[string]string{"kubeconfig": "/k", "node": "n", "dir": "/d", "config-ipvs": "/i", "config-iptables": "/t", "config-nftables": "/f", "kube-ipvs": "/ours", "kube-proxy": "/theirs"}
	for _, c := range Known() {
		line, err := c.fill(values)
		if err != nil || strings.ContainsAny(line, "{}") {
			t.Errorf("%s: %q, %v", c.Name, line, err)
		}
		if _, err := ParseCandidate(c.Name + "=" + c.Command); err != nil {
			t.Error(err)
		}
	}
}

func TestFillNamesWhatIsMissing(t *testing.T) {
	c := Candidate{Name: "x", Command: "x {nonsense} {kubeconfig} {node}"}
	_, err := c.fill(map[string]string{"kubeconfig": "/k"})
	if err == nil || !strings.Contains(err.Error(), "{nonsense}") || !strings.Contains(err.Error(), "{node}") || strings.Contains(err.Error(), "known for {kubeconfig}") {
		t.Errorf("error is %v, want both that are missing", err)
	}
}

func TestParseCandidate(t *testing.T) {
	c, err := ParseCandidate("cilium=cilium-agent --k8s={kubeconfig}")
	if want := (Candidate{"cilium", "cilium-agent --k8s={kubeconfig}"}); err != nil || c != want {
		t.Errorf("candidate is %+v, %v, want %+v", c, err, want)
	}
	for _, text := range []string{"", "x", "x=", "../x=y", "X=y"} {
		if _, err := ParseCandidate(text); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}

func TestChoose(t *testing.T) {
	got, err := Choose([]string{"kube-proxy-ipvs", "kube-ipvs"})
	if err != nil || len(got) != 2 || got[0].Name != "kube-proxy-ipvs" {
		t.Errorf("candidates are %v, %v, want both in that order", got, err)
	}
	if _, err := Choose([]string{"other"}); err == nil {
		t.Error("an unknown name is no error")
	}
}

func TestOptions(t *testing.T) {
	good := func() Options {
		return Options{Services: []int{1}, Candidates: Known(), Parts: Parts(), Samples: 1, Limit: time.Second}
	}
	if o := good(); o.Validate() != nil {
		t.Fatal(o.Validate())
	}
	for name, spoil := range map[string]func(*Options){
		"no Services":        func(o *Options) { o.Services = nil },
		"too many Services":  func(o *Options) { o.Services = []int{1, 20_001} },
		"no candidates":      func(o *Options) { o.Candidates = nil },
		"the same candidate": func(o *Options) { o.Candidates = append(o.Candidates, o.Candidates[0]) },
		"an unknown part":    func(o *Options) { o.Parts = []string{"finish"} },
		"samples":            func(o *Options) { o.Samples = 0 },
		"limit":              func(o *Options) { o.Limit = 0 },
	} {
		o := good()
		if spoil(&o); o.Validate() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
