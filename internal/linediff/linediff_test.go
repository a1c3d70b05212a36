package linediff_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/linediff"
)

func TestCompare(t *testing.T) {
	rules := func(lines ...string) string {
		return "# ip\n*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-X - [0:0]\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
	}
	for _, tt := range []struct {
		name, kind, kernel, desired string
		want                        []string
	}{
		{"equal", "servers", "-A -t 10.0.0.1:80 -s rr\n", "-A -t 10.0.0.1:80 -s rr\n", nil},
		{"nothing at all", "sets", "", "", nil},
		{"order of destinations is none", "servers", "-a -t 10.0.0.1:80 -r a\n-a -t 10.0.0.1:80 -r b\n", "-a -t 10.0.0.1:80 -r b\n-a -t 10.0.0.1:80 -r a\n", nil},
		{"another scheduler, and a lost server", "servers", "-A -t 10.0.0.1:80 -s wlc\n", "-A -t 10.0.0.1:80 -s rr\n-A -u 10.0.0.2:53 -s rr\n",
			[]string{"--A -t 10.0.0.1:80 -s wlc", "+-A -t 10.0.0.1:80 -s rr", "+-A -u 10.0.0.2:53 -s rr"}},
		{"an entry too many", "sets", "add A 1\nadd B 1\n", "add A 1\n", []string{"-add B 1"}},
		{"twice", "addresses", "ip addr add a\nip addr add a\n", "ip addr add a\n", []string{"-ip addr add a"}},
		{"flushed chain", "rules", rules("-A KUBE-X -j A"), rules("-A KUBE-SERVICES -j B", "-A KUBE-X -j A"), []string{"+ip nat -A KUBE-SERVICES -j B"}},
		{"chain that is gone", "rules", "", "# ip6\n*nat\n:KUBE-X - [0:0]\nCOMMIT\n", []string{"+ip6 nat -N KUBE-X"}},
		{"another order", "rules", rules("-A KUBE-X -j B", "-A KUBE-X -j A"), rules("-A KUBE-X -j A", "-A KUBE-X -j B"),
			[]string{"-ip nat -N KUBE-X", "-ip nat -A KUBE-X -j B", "-ip nat -A KUBE-X -j A", "+ip nat -N KUBE-X", "+ip nat -A KUBE-X -j A", "+ip nat -A KUBE-X -j B"}},
		{"order of a dispatch chain", "rules", rules("-A KUBE-SERVICES -j B", "-A KUBE-SERVICES -j A"), rules("-A KUBE-SERVICES -j A", "-A KUBE-SERVICES -j B"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ordered := func(g string) bool { return tt.kind == "rules" && g != "ip nat KUBE-SERVICES" }
			var got []string
			for _, l := range linediff.Compare(linediff.Parse(tt.kind, tt.kernel), linediff.Parse(tt.kind, tt.desired), ordered) {
				got = append(got, l.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWrite(t *testing.T) {
	var b strings.Builder
	for kind, lines := range map[string][]linediff.Line{"sets": nil, "servers": {{Kernel: true, Text: "x"}, {Text: "y"}}} {
		if err := linediff.Write(&b, kind, lines); err != nil {
			t.Fatal(err)
		}
	}
	if want := "@@ servers @@\n-x\n+y\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
