package ipset

import (
	"errors"
	"fmt"
	"net/netip"
)

// ValidateEntry checks that the entry fits the set before the kernel sees it,
// because the kernel's own answers are a number without the field. The error
// names set and entry and matches ErrInvalid.
func (s Set) ValidateEntry(e Entry) error {
	if err := invalid(s.checkEntry(e)); err != nil {
		return fmt.Errorf("entry %s for %s: %w", e, s.Name, err)
	}
	return nil
}

// invalid marks the result of a check.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}

// checkEntry dispatches on the type; each branch refuses fields that the type
// does not have, so that nothing is dropped on the way to the kernel.
func (s Set) checkEntry(e Entry) error {
	switch s.Type {
	case HashIP:
		return errors.Join(s.checkAddr(e.Addr), checkNull(e.Addr), s.checkOnly(e, Entry{Addr: e.Addr}))
	case HashIPPort:
		want := Entry{Addr: e.Addr, Protocol: e.Protocol, Port: e.Port}
		return errors.Join(s.checkAddr(e.Addr), checkProtocol(e.Protocol), s.checkOnly(e, want))
	case HashIPPortIP:
		want := Entry{Addr: e.Addr, Protocol: e.Protocol, Port: e.Port, Addr2: e.Addr2}
		return errors.Join(s.checkAddr(e.Addr), checkProtocol(e.Protocol), s.checkAddr(e.Addr2), s.checkOnly(e, want))
	case HashIPPortNet:
		want := e
		want.Addr2 = netip.Addr{}
		return errors.Join(s.checkAddr(e.Addr), checkProtocol(e.Protocol), s.checkNet(e.Net), s.checkOnly(e, want))
	case BitmapPort:
		return errors.Join(s.checkRange(e.Port), s.checkOnly(e, Entry{Port: e.Port}))
	}
	return fmt.Errorf("type %q is not supported", s.Type)
}

// checkOnly refuses an entry with more in it than the type holds.
func (s Set) checkOnly(e, want Entry) error {
	if e != want {
		return fmt.Errorf("it has fields that type %s does not hold", s.Type)
	}
	return nil
}

// checkAddr checks presence and family. A mapped address is refused: the
// kernel would store it as IPv6 and never match an IPv4 packet.
func (s Set) checkAddr(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return errors.New("an address is missing")
	case a.Is4In6():
		return fmt.Errorf("%s is an IPv4 address mapped into IPv6", a)
	case a.Zone() != "":
		return fmt.Errorf("%s has a zone", a)
	case a.Is4() != (s.Family == IPv4):
		return fmt.Errorf("%s is not of family %s", a, s.Family)
	}
	return nil
}

// checkNull refuses the all-zero address, which hash:ip cannot store.
func checkNull(a netip.Addr) error {
	if a.IsValid() && a.IsUnspecified() {
		return errors.New("the kernel does not store the all-zero address")
	}
	return nil
}

// checkProtocol accepts protocols with ports only: for the others the kernel
// reads the port as an ICMP type or drops it.
func checkProtocol(p uint8) error {
	if !hasPorts(p) {
		return fmt.Errorf("protocol %d has no ports", p)
	}
	return nil
}

// checkNet checks family, canonical form and length. Length 0 is refused here
// with a reason, since the kernel answers only "invalid CIDR".
func (s Set) checkNet(n netip.Prefix) error {
	if !n.IsValid() {
		return errors.New("the network is missing")
	}
	if n.Bits() == 0 {
		return fmt.Errorf("the kernel does not store %s; use two networks of length 1, or no filter", n)
	}
	if n != n.Masked() {
		return fmt.Errorf("network %s has host bits set", n)
	}
	return s.checkAddr(n.Addr())
}

// checkRange checks a port against the bitmap's range.
func (s Set) checkRange(port uint16) error {
	s = s.WithDefaults()
	if port < s.PortFrom || port > s.PortTo {
		return fmt.Errorf("port %d is outside %d-%d", port, s.PortFrom, s.PortTo)
	}
	return nil
}

// validateName refuses what the kernel would cut or take for "all sets" (an
// empty name in a flush), and what the text form could not carry.
func validateName(name string) error {
	if name == "" {
		return errors.New("name is empty")
	}
	if len(name) > MaxNameLen {
		return fmt.Errorf("name has %d bytes, the kernel takes %d", len(name), MaxNameLen)
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f {
			return fmt.Errorf("name holds the byte %#02x", c)
		}
	}
	return nil
}

// checkNames refuses names that could not be those of a set.
func checkNames(names ...string) error {
	for _, n := range names {
		if err := validateName(n); err != nil {
			return invalid(err)
		}
	}
	return nil
}
