package rules_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// TestFilterTables reads what others wrote, of both backends, and does not load tables of legacy for it.
func TestFilterTables(t *testing.T) {
	for _, b := range backends {
		t.Run(string(b), func(t *testing.T) {
			namespace(t)
			needBackend(t, b)
			both := map[rules.Family]bool{rules.IPv4: b == rules.NFT}
			tool(t, "*filter\n:INPUT DROP [0:0]\n:site - [0:0]\n-A INPUT -j site\n-A site -p tcp -j REJECT\nCOMMIT\n", binary(rules.IPv4, b, "-restore"), "--noflush")
			var got []string
			for _, f := range rules.FilterTables(t.Context(), rules.Options{Families: []rules.Family{rules.IPv4}}, both) {
				if f.Err != nil {
					t.Error(f.Err)
				}
				for _, c := range f.Table.Chains {
					got = append(got, strings.Join(append([]string{string(f.Backend), c.Name, c.Policy}, c.Rules...), " "))
				}
			}
			name := string(b)
			want := []string{
				name + " INPUT DROP -j site", name + " FORWARD ACCEPT", name + " OUTPUT ACCEPT",
				name + " site - -p tcp -j REJECT --reject-with icmp-port-unreachable",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("chains (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnreadableNamesAreAnAnswer: where the names of loaded tables cannot be read the filter of legacy is unread, not absent.
func TestUnreadableNamesAreAnAnswer(t *testing.T) {
	opts := rules.Options{Root: t.TempDir(), Families: []rules.Family{rules.IPv4}}
	if tables := rules.FilterTables(t.Context(), opts, nil); len(tables) > 0 || rules.LegacyThere(opts) {
		t.Errorf("a kernel without tables has %v", tables)
	}
	names := filepath.Join(opts.Root, "proc/thread-self/net/ip_tables_names") // a directory of that name is there, and cannot be read
	if err := os.MkdirAll(names, 0o755); err != nil {
		t.Fatal(err)
	}
	tables := rules.FilterTables(t.Context(), opts, nil)
	if len(tables) != 1 || tables[0].Backend != rules.Legacy || !errors.Is(tables[0].Err, syscall.EISDIR) {
		t.Errorf("filters %+v, want that of legacy with the error of the read", tables)
	}
	if !rules.LegacyThere(opts) {
		t.Error("what cannot be read counts as absent")
	}
}
