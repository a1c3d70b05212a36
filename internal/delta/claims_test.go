package delta_test

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
)

func newClaims() *delta.Claims[string, string, int] {
	return delta.NewClaims[string, string, int](cmp.Compare[string])
}

func TestFirstOwnerHolds(t *testing.T) {
	c := newClaims()
	c.Set("young", map[string]int{"vip": 2})
	got := c.Set("old", map[string]int{"vip": 1})
	want := []delta.Holding[string, string, int]{{Key: "vip", Held: true, Owner: "old", Value: 1}}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the elder came second (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]string{"old", "young"}, c.Claimants("vip")); diff != "" {
		t.Errorf("claimants (-want +got):\n%s", diff)
	}
	got = c.Set("old", nil)
	want[0] = delta.Holding[string, string, int]{Key: "vip", Held: true, Owner: "young", Value: 2}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the elder left (-want +got):\n%s", diff)
	}
	got = c.Set("young", nil)
	want[0] = delta.Holding[string, string, int]{Key: "vip"}
	if diff := gocmp.Diff(want, got); diff != "" || c.Len() != 0 {
		t.Errorf("all left, %d keys held (-want +got):\n%s", c.Len(), diff)
	}
}

func TestSetReportsReleasedAndClaimed(t *testing.T) {
	c := newClaims()
	c.Set("a", map[string]int{"kept": 1, "left": 1})
	held := map[string]bool{}
	for _, h := range c.Set("a", map[string]int{"kept": 2, "new": 1}) {
		held[h.Key] = h.Held
	}
	if diff := gocmp.Diff(map[string]bool{"kept": true, "left": false, "new": true}, held); diff != "" {
		t.Errorf("touched (-want +got):\n%s", diff)
	}
}

// FuzzClaims compares the holders with a model that asks all owners in order.
func FuzzClaims(f *testing.F) {
	f.Add([]byte{0x13, 0x2f, 0x10, 0x31})
	f.Fuzz(func(t *testing.T, ops []byte) {
		c := newClaims()
		owners := map[string]map[string]int{}
		for i, op := range ops {
			owner := string('a' + rune(op>>4&3))
			rows := map[string]int{}
			for bit := range 4 {
				if op&(1<<bit) != 0 {
					rows[string('k'+rune(bit))] = i
				}
			}
			owners[owner] = rows
			c.Set(owner, rows)
			compareHolders(t, c, owners)
		}
	})
}

func compareHolders(t *testing.T, c *delta.Claims[string, string, int], owners map[string]map[string]int) {
	t.Helper()
	held := map[string]bool{}
	for _, k := range []string{"k", "l", "m", "n"} {
		var want delta.Holding[string, string, int]
		want.Key = k
		for _, o := range slices.Backward(slices.Sorted(maps.Keys(owners))) {
			if v, ok := owners[o][k]; ok {
				want = delta.Holding[string, string, int]{Key: k, Held: true, Owner: o, Value: v}
				held[k] = true
			}
		}
		if got := c.Holder(k); got != want {
			t.Fatalf("holder of %s is %+v, want %+v", k, got, want)
		}
	}
	if c.Len() != len(held) {
		t.Fatalf("%d keys held, want %d", c.Len(), len(held))
	}
}
