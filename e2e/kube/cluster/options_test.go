package cluster

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name, wantErr string
		options       Options
	}{
		{name: "nothing set"},
		{name: "one family", options: Options{ServiceCIDRs: prefixes("fd00::/112")}},
		{name: "two of one family", options: Options{ServiceCIDRs: prefixes("10.0.0.0/16", "10.1.0.0/16")}, wantErr: "service CIDRs"},
		{name: "three", options: Options{ServiceCIDRs: prefixes("10.0.0.0/16", "fd00::/112", "10.1.0.0/16")}, wantErr: "service CIDRs"},
		{name: "port", options: Options{Port: 65536}, wantErr: "port 65536"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.options.Defaults()
			err := tt.options.Validate()
			if got := err == nil; got != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("Validate = %v, want %q", err, tt.wantErr)
			}
		})
	}
}

// TestAddresses covers the effect of the options' addresses: the one that local clients use, and those that the server gets.
func TestAddresses(t *testing.T) {
	tests := []struct {
		name      string
		options   Options
		wantLocal string
		wantArgs  []string
	}{
		{
			name:      "loopback only",
			wantLocal: "https://127.0.0.1:20000",
			wantArgs:  []string{"--bind-address=127.0.0.1", "--endpoint-reconciler-type=none", "--advertise-address=192.0.2.1"},
		},
		{
			name:      "a guest of QEMU",
			options:   Options{Reached: []netip.Addr{HostFromGuest}},
			wantLocal: "https://127.0.0.1:20000",
			wantArgs:  []string{"--bind-address=127.0.0.1", "--advertise-address=10.0.2.2"},
		},
		{
			name:      "every address",
			options:   Options{Bind: netip.IPv6Unspecified(), Reached: addrs("::1", "fd00::1")},
			wantLocal: "https://[::1]:20000",
			wantArgs:  []string{"--bind-address=::", "--advertise-address=fd00::1"},
		},
		{
			name:      "every address of IPv4",
			options:   Options{Bind: netip.IPv4Unspecified()},
			wantLocal: "https://127.0.0.1:20000",
			wantArgs:  []string{"--bind-address=0.0.0.0", "--endpoint-reconciler-type=none", "--advertise-address=192.0.2.1"},
		},
		{
			name:      "an address of a node",
			options:   Options{Bind: netip.MustParseAddr("192.168.1.5")},
			wantLocal: "https://192.168.1.5:20000",
			wantArgs:  []string{"--bind-address=192.168.1.5", "--advertise-address=192.168.1.5"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.options.Defaults()
			if got := serverURL(tt.options.local(), 20000); got != tt.wantLocal {
				t.Errorf("local clients ask %s, want %s", got, tt.wantLocal)
			}
			args := slices.DeleteFunc(apiServerArgs(tt.options, 20000, "http://etcd", files{}), func(arg string) bool {
				return !strings.Contains(arg, "address=") && !strings.Contains(arg, "reconciler")
			})
			if diff := cmp.Diff(tt.wantArgs, args); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodes: with kubelets the server asks for ServiceAccounts, authorises nodes, and has a certificate for exec and logs.
func TestNodes(t *testing.T) {
	for _, nodes := range []bool{false, true} {
		o := Options{Nodes: nodes}
		o.Defaults()
		var f files
		f.kubelet.cert = "/keys/kubelet.crt"
		args := apiServerArgs(o, 20000, "http://etcd", f)
		for arg, want := range map[string]bool{
			"--authorization-mode=RBAC": true, "--authorization-mode=Node": nodes,
			"--disable-admission-plugins=ServiceAccount": !nodes, "--kubelet-client-certificate=/keys/kubelet.crt": nodes,
		} {
			if slices.Contains(args, arg) != want {
				t.Errorf("nodes %t: %q among %q: %t, want %t", nodes, arg, args, !want, want)
			}
		}
	}
}

func TestOwnArgumentsComeLast(t *testing.T) {
	o := Options{ServiceCIDRs: prefixes("fd00::/112", "10.0.0.0/16"), APIServerArgs: []string{"--v=4"}}
	o.Defaults()
	args := apiServerArgs(o, 20000, "http://etcd", files{})
	if args[len(args)-1] != "--v=4" {
		t.Errorf("the last argument is %s, want --v=4", args[len(args)-1])
	}
	if want := "--service-cluster-ip-range=fd00::/112,10.0.0.0/16"; !slices.Contains(args, want) {
		t.Errorf("arguments %q lack %s", args, want)
	}
}

func TestFreePorts(t *testing.T) {
	loopback := netip.MustParseAddr("127.0.0.1")
	ports, err := freePorts(loopback, 5)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range ports {
		if port < firstPort || port >= firstPort+portCount || seen[port] {
			t.Errorf("port %d of %v is out of range or comes twice", port, ports)
		}
		seen[port] = true
		listener, err := net.Listen("tcp", netip.AddrPortFrom(loopback, uint16(port)).String())
		if err != nil {
			t.Errorf("port %d is not free: %v", port, err)
			continue
		}
		listener.Close()
	}
	if ports, err := freePorts(netip.MustParseAddr("192.0.2.1"), 1); err == nil {
		t.Errorf("an address that this machine does not have gave %v", ports)
	}
}

// TestCertified: pods reach the API server by the Service "kubernetes", whose address is the first of the range.
func TestCertified(t *testing.T) {
	o := Options{Reached: []netip.Addr{HostFromGuest}}
	o.Defaults()
	got := o.certified()
	for _, want := range []string{"127.0.0.1", "10.0.2.2", "10.96.0.1", "fd00:10:96::1"} {
		if !slices.Contains(got, netip.MustParseAddr(want)) {
			t.Errorf("the certificate has %v, and lacks %s", got, want)
		}
	}
}
