package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// readKernel reads the tables that are wanted from the network namespace that the calling thread is in.
func readKernel(ctx context.Context, o options) (rows, error) {
	var all rows
	var err error
	if o.wants(tableIPVS) {
		if all.Servers, err = readServers(ctx); err != nil {
			return rows{}, fmt.Errorf("read virtual servers: %w", err)
		}
	}
	if o.wants(tableSets) {
		if all.Sets, err = readSets(ctx); err != nil {
			return rows{}, fmt.Errorf("read sets: %w", err)
		}
	}
	if o.wants(tableAddresses) {
		if all.Addresses, err = readAddresses(o.device); err != nil {
			return rows{}, fmt.Errorf("read addresses of %s: %w", o.device, err)
		}
	}
	return all, nil
}

func readServers(ctx context.Context) ([]serverRow, error) {
	h, err := vserver.New(zap.NewNop(), vserver.Options{})
	if err != nil {
		return nil, err
	}
	defer h.Close()
	servers, destinations, err := h.List(ctx)
	if err != nil {
		return nil, err
	}
	of := map[vserver.ServerKey][]destinationRow{}
	for _, k := range slices.SortedFunc(maps.Keys(destinations), vserver.DestinationKey.Compare) {
		of[k.Server] = append(of[k.Server], destinationRow{netip.AddrPortFrom(k.Addr, k.Port), destinations[k]})
	}
	var all []serverRow
	for _, k := range slices.SortedFunc(maps.Keys(servers), vserver.ServerKey.Compare) {
		all = append(all, serverRow{k, servers[k], of[k]})
	}
	return all, nil
}

// readSets fails where there is a set that could not be written as it is.
func readSets(ctx context.Context) ([]setRow, error) {
	h, err := ipset.New(ipset.Options{})
	if err != nil {
		return nil, err
	}
	defer h.Close()
	headers, err := h.ListSets(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(headers, func(a, b ipset.Set) int { return cmp.Compare(a.Name, b.Name) })
	var all []setRow
	for _, s := range headers {
		if err := s.Validate(); err != nil {
			return nil, err
		}
		header, entries, err := h.List(ctx, s.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, setRow{header, entries})
	}
	return all, nil
}

// readAddresses reads the host addresses of a link. One that the kernel chose itself is not the agent's.
func readAddresses(device string) ([]netip.Addr, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	link, err := h.LinkByName(device)
	if err != nil {
		return nil, err
	}
	found, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for _, a := range found {
		addr, _ := netip.AddrFromSlice(a.IP)
		if addr = addr.Unmap(); addr.IsLinkLocalUnicast() {
			continue
		}
		if ones, bits := a.Mask.Size(); ones != bits {
			return nil, fmt.Errorf("%s is not a host address", a.IPNet)
		}
		all = append(all, addr)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all, nil
}

// apart runs a function in a new network namespace with lo up, whose thread ends with it. Without an address on lo the kernel takes every
// destination's address for a broadcast and refuses it.
func apart(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		err := raiseLoopback()
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func raiseLoopback() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err == nil {
		err = h.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

// addLink makes a link, which stays down as that of an agent does, and returns its index.
func addLink(name, kind string) (uint32, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	err = h.LinkAdd(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: name}, LinkType: kind})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return 0, fmt.Errorf("this kernel makes no links of type %s: %w", kind, err)
	}
	if err != nil {
		return 0, fmt.Errorf("make %s link %s: %w", kind, name, err)
	}
	link, err := h.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("find link %s: %w", name, err)
	}
	return uint32(link.Attrs().Index), nil
}
