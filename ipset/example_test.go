package ipset_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"

	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

// A program works on the kernel's sets through one Handle per goroutine. This
// needs CAP_NET_ADMIN.
func Example() {
	h, err := ipset.New(ipset.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = h.Close() }()

	ctx := context.Background()
	blocked := ipset.Set{Name: "blocked", Type: ipset.HashIP, Family: ipset.IPv4}
	if err := h.Create(ctx, blocked); err != nil && !errors.Is(err, ipset.ErrExist) {
		log.Fatal(err)
	}
	changes := []ipset.Change{
		ipset.AddEntry(ipset.IP(netip.MustParseAddr("192.0.2.1"))),
		ipset.DeleteEntry(ipset.IP(netip.MustParseAddr("192.0.2.2"))),
	}
	for i, err := range h.Write(ctx, blocked, changes) {
		if err != nil {
			log.Print(changes[i], ": ", err)
		}
	}
}

// Entries and sets are values; their text is that of the ipset tool.
func ExampleWriteSave() {
	set := ipset.Set{Name: "KUBE-LOOP-BACK", Type: ipset.HashIPPortIP, Family: ipset.IPv4}
	pod := netip.MustParseAddr("10.244.0.5")
	contents := ipset.Contents{Set: set, Entries: []ipset.Entry{
		ipset.IPPortIP(pod, ipset.UDP, 53, pod),
		ipset.IPPortIP(pod, ipset.TCP, 8080, pod),
	}}
	if err := ipset.WriteSave(os.Stdout, contents); err != nil {
		log.Fatal(err)
	}
	// Output:
	// create KUBE-LOOP-BACK hash:ip,port,ip family inet hashsize 1024 maxelem 65536
	// add KUBE-LOOP-BACK 10.244.0.5,tcp:8080,10.244.0.5
	// add KUBE-LOOP-BACK 10.244.0.5,udp:53,10.244.0.5
}

// Each row of a Write has its own result, and a refused row does not stop the
// others. The fake stands in for the kernel here.
func ExampleHandle_Write() {
	var h interface {
		Create(context.Context, ipset.Set) error
		Write(context.Context, ipset.Set, []ipset.Change) []error
	} = ipsettest.New() // in a program: ipset.New

	ctx := context.Background()
	ports := ipset.Set{Name: "ports", Type: ipset.BitmapPort, PortFrom: 30000, PortTo: 32767}
	if err := h.Create(ctx, ports); err != nil {
		log.Fatal(err)
	}
	errs := h.Write(ctx, ports, []ipset.Change{
		ipset.AddEntry(ipset.Port(30080)),
		ipset.AddEntry(ipset.Port(80)),
		ipset.DeleteEntry(ipset.Port(31000)), // is not there, and that is fine
	})
	fmt.Println(errs[0])
	fmt.Println(errs[1])
	fmt.Println(errs[2], errors.Is(errs[1], ipset.ErrInvalid))
	// Output:
	// <nil>
	// add 80 to ports: invalid: port 80 is outside 30000-32767
	// <nil> true
}

// A set that is too small is replaced by a larger one, while rules go on
// matching the name.
func ExampleReplace() {
	h, ctx := ipsettest.New(), context.Background() // in a program: ipset.New
	set := ipset.Set{Name: "services", Type: ipset.HashIPPort, Family: ipset.IPv4, MaxElem: 1}
	web := ipset.IPPort(netip.MustParseAddr("10.96.0.1"), ipset.TCP, 80)
	dns := ipset.IPPort(netip.MustParseAddr("10.96.0.10"), ipset.UDP, 53)
	if err := h.Create(ctx, set); err != nil {
		log.Fatal(err)
	}
	err := h.Add(ctx, "services", web, dns)
	fmt.Println(err)
	if errors.Is(err, ipset.ErrFull) {
		set.MaxElem = 65536
		fmt.Println(ipset.Replace(ctx, h, set, []ipset.Entry{web, dns}))
	}
	fmt.Print(h)
	// Output:
	// add 10.96.0.10,udp:53 to services: set is full
	// <nil>
	// create services hash:ip,port family inet hashsize 1024 maxelem 65536
	// add services 10.96.0.1,tcp:80
	// add services 10.96.0.10,udp:53
}

// A set found in the kernel is compared with the wanted one before it is used.
func ExampleSet_Compatible() {
	wanted := ipset.Set{Name: "a", Type: ipset.HashIP, Family: ipset.IPv4}
	grown, other := wanted, wanted
	grown.HashSize = 32768
	other.Timeout = 300
	fmt.Println(wanted.Compatible(grown), wanted.Compatible(other))
	// Output: true false
}

// Text of a member is read with the type of its set.
func ExampleParseEntry() {
	e, err := ipset.ParseEntry(ipset.HashIPPortNet, "203.0.113.7,tcp:443,198.51.100.0/24")
	fmt.Println(e.Addr, ipset.ProtocolName(e.Protocol), e.Port, e.Net, err)
	// Output: 203.0.113.7 tcp 443 198.51.100.0/24 <nil>
}
