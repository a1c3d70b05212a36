package source_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// TestDrain: what a Service says of its connections, and that a slip of the pen costs
// nothing but itself.
func TestDrain(t *testing.T) {
	const head, used = "kube default/web ClusterIP", "ips [10.96.0.1]\nport \"\" 80/tcp"
	bad := func(value string) string {
		return lines(head, used, "problem metadata.annotations[kube-ipvs.io/drain]: "+value+
			" is not a duration from 0s to 1h such as 90s or 5m: what the node is set to (--drain) holds")
	}
	for _, tt := range []struct{ name, annotations, want string }{
		{"none", "{}", lines(head, used)},
		{"another one", "{kube-ipvs.io/drains: 5m, drain: 5m}", lines(head, used)},
		{"seconds", "{kube-ipvs.io/drain: 90s}", lines(head, used, "drain 1m30s")},
		{"blanks around", `{kube-ipvs.io/drain: " 5m\n"}`, lines(head, used, "drain 5m0s")},
		{"nothing goes on", "{kube-ipvs.io/drain: 0s}", lines(head, used, "drain 0s")},
		{"0 without a unit", `{kube-ipvs.io/drain: "0"}`, lines(head, used, "drain 0s")},
		{"the longest", "{kube-ipvs.io/drain: 60m}", lines(head, used, "drain 1h0m0s")},
		{"a little longer", "{kube-ipvs.io/drain: 1h0m0.000000001s}", bad(`"1h0m0.000000001s"`)},
		{"below 0", "{kube-ipvs.io/drain: -1ns}", bad(`"-1ns"`)},
		{"no unit", `{kube-ipvs.io/drain: "30"}`, bad(`"30"`)},
		{"words", "{kube-ipvs.io/drain: five minutes}", bad(`"five minutes"`)},
		{"empty", `{kube-ipvs.io/drain: ""}`, bad(`""`)},
		{"more than can be counted", "{kube-ipvs.io/drain: 9999999999h}", bad(`"9999999999h"`)},
		{"a line break", `{kube-ipvs.io/drain: "1\n2"}`, bad(`"1\n2"`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := read[corev1.Service](t, "metadata: {name: web, annotations: "+tt.annotations+"}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}")
			if diff := cmp.Diff(tt.want, showService(source.Service(model.FromKube, in))); diff != "" {
				t.Errorf("service (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzDrain: whatever the annotation says, it is within bounds, or a problem.
func FuzzDrain(f *testing.F) {
	for _, text := range []string{"30s", "0", "1h", "1h1ns", "-0s", "+5m", "1.5h", ".5s", "1e3s", "9223372036854775807ns", "9223372036854775808ns", "∞", "\x00", " 1m ", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		in := &corev1.Service{}
		in.Name, in.Annotations = "web", map[string]string{"kube-ipvs.io/drain": text}
		got := source.Service(model.FromFile, in)
		switch {
		case got.Drain == nil && len(got.Problems) == 0:
			t.Errorf("%q is neither taken nor a problem", text)
		case got.Drain != nil && (*got.Drain < 0 || *got.Drain > time.Hour || len(got.Problems) > 0):
			t.Errorf("%q: drain %s, problems %q", text, *got.Drain, got.Problems)
		}
	})
}
