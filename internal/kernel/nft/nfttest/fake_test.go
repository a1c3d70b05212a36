package nfttest_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft/nfttest"
)

func TestFakeKeepsContract(t *testing.T) {
	nfttest.Contract(t, func(*testing.T) nfttest.Subject {
		f := nfttest.New()
		return nfttest.Subject{
			Client: f,
			Fake:   true,
			Disturb: nfttest.Disturb{
				Flush:         func(*testing.T) { f.Flush() },
				AddRule:       func(_ *testing.T, k nft.Key, r nft.Rule) { f.AddRule(k, r) },
				DeleteElement: func(_ *testing.T, k nft.Key, _ nft.Set, e nft.Element) { f.DeleteElement(k, e) },
				OtherVersion: func(t *testing.T, family nft.Family) {
					must(t, f.Apply(t.Context(), nft.Pass{
						Tables: []nft.TableChange{{Op: nft.Add, Family: family}},
						Chains: []nft.ChainChange{{Op: nft.Add, Key: nft.Key{Family: family, Name: "old"}}},
					}))
					f.SetVersion(family, nft.Version+1)
				},
			},
			Readers: map[string]func(*testing.T) string{"String": func(*testing.T) string { return f.String() }},
		}
	})
}

func must(t *testing.T, o nft.Outcome) {
	t.Helper()
	if err := o.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestFaults(t *testing.T) {
	f := nfttest.New()
	set := nft.SetChange{Op: nft.Add, Key: nft.Key{Family: nft.IPv4, Name: "a"}, Set: nft.Set{Shape: nft.Addr}}
	other := set
	other.Key.Name = "b"
	p := nft.Pass{Tables: []nft.TableChange{{Op: nft.Add, Family: nft.IPv4}}, Sets: []nft.SetChange{set, other}}

	f.FailCall(2, syscall.EPERM)
	if _, err := f.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o := f.Apply(t.Context(), p); !errors.Is(o.Tables[0], syscall.EPERM) || !errors.Is(o.Sets[1], syscall.EPERM) {
		t.Errorf("second call: %v, want %v", o, syscall.EPERM)
	}
	f.HangCall(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if o := f.Apply(ctx, p); !errors.Is(o.Sets[0], nft.ErrBusy) || !errors.Is(o.Sets[0], context.DeadlineExceeded) {
		t.Errorf("hanging call: %v", o)
	}
	f.FailAlways(nft.ErrBusy)
	if _, _, err := f.Elements(t.Context(), set.Key); !errors.Is(err, nft.ErrBusy) {
		t.Errorf("Elements: %v, want %v", err, nft.ErrBusy)
	}
	if got := f.String(); got != "" {
		t.Errorf("calls that failed wrote\n%s", got)
	}
	f.Heal()
	f.RefuseRow("add set ip kube-ipvs b", nft.ErrUnsupported)
	if o := f.Apply(t.Context(), p); o.Tables != nil || o.Sets[0] != nil || !errors.Is(o.Sets[1], nft.ErrUnsupported) {
		t.Errorf("refused row: %v", o)
	}
	if got, want := f.String(), "table ip kube-ipvs {\n\tset a {\n\t\ttype ipv4_addr\n\t}\n}\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if n := f.Calls(); n != 5 {
		t.Errorf("%d calls, want 5", n)
	}
}
