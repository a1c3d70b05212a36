package ipset_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

func TestSetValidate(t *testing.T) {
	good := ipset.Set{Name: "a", Type: ipset.HashIP, Family: ipset.IPv4}
	with := func(change func(*ipset.Set)) ipset.Set { s := good; change(&s); return s }
	for _, tt := range []struct {
		name string
		set  ipset.Set
		want string // part of the error, "" for none
	}{
		{"hash", good, ""},
		{"bitmap", ipset.Set{Name: "p", Type: ipset.BitmapPort, PortFrom: 5, PortTo: 5}, ""},
		{"longest name", with(func(s *ipset.Set) { s.Name = strings.Repeat("x", 31) }), ""},
		{"long name", with(func(s *ipset.Set) { s.Name = strings.Repeat("x", 32) }), "32 bytes"},
		{"no name", with(func(s *ipset.Set) { s.Name = "" }), "name is empty"},
		{"blank in name", with(func(s *ipset.Set) { s.Name = "a b" }), "byte 0x20"},
		{"not ASCII", with(func(s *ipset.Set) { s.Name = "ä" }), "byte 0xc3"},
		{"type", with(func(s *ipset.Set) { s.Type = "hash:mac" }), "hash:mac"},
		{"no family", with(func(s *ipset.Set) { s.Family = ipset.Unspec }), "not unspec"},
		{"odd family", with(func(s *ipset.Set) { s.Family = 7 }), "not family 7"},
		{"hash with range", with(func(s *ipset.Set) { s.PortTo = 9 }), "no port range"},
		{"options", with(func(s *ipset.Set) { s.Options = "timeout 0" }), "timeout 0"},
		{"bitmap with family", ipset.Set{Name: "p", Type: ipset.BitmapPort, Family: ipset.IPv6}, "has no family, not inet6"},
		{"bitmap with maxelem", ipset.Set{Name: "p", Type: ipset.BitmapPort, MaxElem: 9}, "no hashsize or maxelem"},
		{"reversed range", ipset.Set{Name: "p", Type: ipset.BitmapPort, PortFrom: 9, PortTo: 8}, "9-8 is reversed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.set.Validate()
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ipset.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Validate() = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestValidateReportsEverything(t *testing.T) {
	err := ipset.Set{Name: "a b", Type: ipset.HashIP, Options: "counters"}.Validate()
	for _, want := range []string{"byte 0x20", "needs family", "counters"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestCompatible(t *testing.T) {
	wanted := ipset.Set{Name: "a", Type: ipset.HashIP, Family: ipset.IPv4}
	for _, tt := range []struct {
		name   string
		change func(*ipset.Set)
		want   bool
	}{
		{"as created", func(*ipset.Set) {}, true},
		{"grown", func(s *ipset.Set) { s.HashSize = 65536 }, true},
		{"other capacity", func(s *ipset.Set) { s.MaxElem = 9 }, false},
		{"other family", func(s *ipset.Set) { s.Family = ipset.IPv6 }, false},
		{"other type", func(s *ipset.Set) { s.Type = ipset.HashIPPort }, false},
		{"other name", func(s *ipset.Set) { s.Name = "b" }, false},
		{"options", func(s *ipset.Set) { s.Options = "comment" }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := wanted.WithDefaults()
			tt.change(&found)
			if got := wanted.Compatible(found); got != tt.want {
				t.Errorf("Compatible(%+v) = %t", found, got)
			}
		})
	}
}

func TestValidateEntry(t *testing.T) {
	net := netip.MustParsePrefix
	v4 := func(typ ipset.Type) ipset.Set { return ipset.Set{Name: "s", Type: typ, Family: ipset.IPv4} }
	v6 := ipset.Set{Name: "s", Type: ipset.HashIP, Family: ipset.IPv6}
	ports := ipset.Set{Name: "s", Type: ipset.BitmapPort, PortFrom: 30000, PortTo: 32767}
	svc := ipset.IPPort(addr("10.0.0.1"), ipset.TCP, 80)
	unmasked := svc
	unmasked.Net = netip.PrefixFrom(addr("10.1.2.3"), 8)
	for _, tt := range []struct {
		name  string
		set   ipset.Set
		entry ipset.Entry
		want  string
	}{
		{"ip", v4(ipset.HashIP), ipset.IP(addr("10.0.0.1")), ""},
		{"ip6", v6, ipset.IP(addr("fd00::1")), ""},
		{"service", v4(ipset.HashIPPort), svc, ""},
		{"port in range", ports, ipset.Port(32767), ""},
		{"half of everything", v4(ipset.HashIPPortNet), ipset.IPPortNet(svc.Addr, ipset.TCP, 80, net("0.0.0.0/1")), ""},
		{"no address", v4(ipset.HashIP), ipset.Entry{}, "an address is missing"},
		{"wrong family", v4(ipset.HashIP), ipset.IP(addr("fd00::1")), "fd00::1 is not of family inet"},
		{"wrong family 6", v6, ipset.IP(addr("10.0.0.1")), "10.0.0.1 is not of family inet6"},
		{"mapped", v6, ipset.Entry{Addr: addr("::ffff:10.0.0.1")}, "mapped into IPv6"},
		{"zone", v6, ipset.IP(addr("fe80::1%eth0")), "has a zone"},
		{"null", v4(ipset.HashIP), ipset.IP(addr("0.0.0.0")), "all-zero"},
		{"too many fields", v4(ipset.HashIP), svc, "does not hold"},
		{"no protocol", v4(ipset.HashIPPort), ipset.IP(svc.Addr), "protocol 0 has no ports"},
		{"icmp", v4(ipset.HashIPPort), ipset.IPPort(svc.Addr, 1, 8), "protocol 1 has no ports"},
		{"no second address", v4(ipset.HashIPPortIP), svc, "an address is missing"},
		{"mixed families", v4(ipset.HashIPPortIP), ipset.IPPortIP(svc.Addr, ipset.TCP, 80, addr("fd00::1")), "fd00::1 is not of family inet"},
		{"no network", v4(ipset.HashIPPortNet), svc, "network is missing"},
		{"whole world", v4(ipset.HashIPPortNet), ipset.IPPortNet(svc.Addr, ipset.TCP, 80, net("0.0.0.0/0")), "two networks of length 1"},
		{"host bits", v4(ipset.HashIPPortNet), unmasked, "host bits"},
		{"nomatch elsewhere", v4(ipset.HashIPPort), ipset.Entry{Addr: svc.Addr, Protocol: ipset.TCP, NoMatch: true}, "does not hold"},
		{"port below", ports, ipset.Port(29999), "outside 30000-32767"},
		{"address in bitmap", ports, ipset.IP(addr("10.0.0.1")), "does not hold"},
		{"unknown type", v4("hash:mac"), svc, "hash:mac"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.set.ValidateEntry(tt.entry)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ipset.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ValidateEntry() = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	for _, tt := range []struct {
		err  ipset.Error
		want string
	}{
		{ipset.Error{Op: ipset.OpAdd, Set: "KUBE-CLUSTER-IP", Entry: "10.96.0.1,tcp:80", Err: ipset.ErrFull}, "add 10.96.0.1,tcp:80 to KUBE-CLUSTER-IP: set is full"},
		{ipset.Error{Op: ipset.OpDelete, Set: "a", Entry: "80", Err: ipset.ErrNotExist}, "delete 80 from a: does not exist"},
		{ipset.Error{Op: ipset.OpTest, Set: "a", Entry: "80", Err: ipset.ErrInvalid}, "test 80 in a: invalid"},
		{ipset.Error{Op: ipset.OpSwap, Set: "a", Other: "b", Err: ipset.ErrUnsupported}, "swap a and b: not supported"},
		{ipset.Error{Op: ipset.OpProbe, Err: syscall.EPERM}, "probe: operation not permitted"},
		{ipset.Error{Op: 99, Set: "a", Err: ipset.ErrBusy}, "unknown operation a: in use by the kernel"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
		if !errors.Is(&tt.err, tt.err.Err) {
			t.Errorf("%q does not match its reason", tt.want)
		}
	}
}

func TestOptions(t *testing.T) {
	if got := (ipset.Options{}).Defaults().Timeout; got != ipset.DefaultTimeout {
		t.Errorf("default timeout %s", got)
	}
	if got := (ipset.Options{Timeout: time.Second}).Defaults().Timeout; got != time.Second {
		t.Errorf("timeout %s became %s", time.Second, got)
	}
	if _, err := ipset.New(ipset.Options{Timeout: -1}); err == nil {
		t.Error("a negative timeout is accepted")
	}
}

// racing makes Replace meet a subsystem in which a step fails.
type racing struct{ fails map[string]error }

func (r racing) Create(context.Context, ipset.Set) error                  { return r.fails["create"] }
func (r racing) Destroy(_ context.Context, name string) error             { return r.fails["destroy "+name] }
func (r racing) Swap(context.Context, string, string) error               { return r.fails["swap"] }
func (r racing) Rename(context.Context, string, string) error             { return r.fails["rename"] }
func (r racing) Write(context.Context, ipset.Set, []ipset.Change) []error { return nil }

func TestReplaceReportsTheStepThatFailed(t *testing.T) {
	cause := errors.New("broken")
	temp := ipset.TempName("a")
	for name, fails := range map[string]map[string]error{
		"left-over stays":   {"destroy " + temp: cause},
		"create":            {"create": cause},
		"swap":              {"swap": cause},
		"rename":            {"swap": ipset.ErrNotExist, "rename": cause},
		"destroy the other": {"swap": ipset.ErrUnsupported, "destroy a": cause},
		"rename over other": {"swap": ipset.ErrUnsupported, "rename": cause},
	} {
		t.Run(name, func(t *testing.T) {
			err := ipset.Replace(t.Context(), racing{fails}, ipset.Set{Name: "a", Type: ipset.BitmapPort}, nil)
			if !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "replace a: ") {
				t.Errorf("Replace = %v", err)
			}
		})
	}
	err := ipset.Replace(t.Context(), racing{}, ipset.Set{}, nil)
	if !errors.Is(err, ipset.ErrInvalid) {
		t.Errorf("Replace of an invalid set = %v", err)
	}
}

func TestTempNames(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{
		"a", "KUBE-LOAD-BALANCER-SOURCE-IP", "KUBE-LOAD-BALANCER-SOURCE-CIDR", "KUBE-6-LOAD-BALANCER-SOURCE-CID",
		"KUBE-NODE-PORT-LOCAL-SCTP-HASH", "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS",
	} {
		temp := ipset.TempName(name)
		s := ipset.Set{Name: temp, Type: ipset.BitmapPort}
		if err := s.Validate(); err != nil || seen[temp] || temp != ipset.TempName(name) {
			t.Errorf("TempName(%s) = %s, %v", name, temp, err)
		}
		if prefix := name[:min(len(name), 7)]; !strings.HasPrefix(temp, prefix) {
			t.Errorf("TempName(%s) = %s does not keep %s", name, temp, prefix)
		}
		seen[temp] = true
	}
}
