package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// netFile is a file of /proc/net in the namespace of the calling thread.
func netFile(root, name string) string { return filepath.Join(root, "proc/thread-self/net", name) }

// UsableFamilies returns the families of which this node can bind addresses, whatever its tools are.
func UsableFamilies() []Family {
	if ipv6Usable(Options{}.Defaults()) != nil {
		return []Family{IPv4}
	}
	return []Family{IPv4, IPv6}
}

// ipv6Usable fails with ErrUnsupported, naming the reason, where no address of
// IPv6 can be bound. ip6tables works there all the same, so trying it does not
// tell, and every IPv6 address would be refused for as long as the agent runs.
func ipv6Usable(opts Options) error {
	if _, err := os.Stat(netFile(opts.Root, "if_inet6")); err != nil {
		return fmt.Errorf("IPv6 is not in the running kernel: %w", ErrUnsupported) // ipv6.disable=1
	}
	// A link that is there has a value of its own; one that is yet to be made
	// takes over that of default.
	deciding := []string{opts.Link}
	if _, there := disableIPv6(opts.Root, opts.Link); !there {
		deciding = []string{"all", "default"}
	}
	for _, link := range deciding {
		if off, _ := disableIPv6(opts.Root, link); off {
			return fmt.Errorf("net.ipv6.conf.%s.disable_ipv6=1: %w", link, ErrUnsupported)
		}
	}
	return nil
}

// disableIPv6 reads the switch of one link. A switch that cannot be read is ignored: a family is
// only left out with evidence.
func disableIPv6(root, link string) (off, there bool) {
	text, err := os.ReadFile(filepath.Join(root, "proc/sys/net/ipv6/conf", link, "disable_ipv6"))
	return strings.TrimSpace(string(text)) == "1", err == nil
}
