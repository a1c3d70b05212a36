package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// theLink carries the addresses in the namespace that is written to.
const theLink = "limit0"

// measure writes a sample and then all rows, as often as was asked for, each to a namespace of its own. They all stay until the end: taking
// one down would hold the locks that writing needs.
func measure(ctx context.Context, o options, all rows) (report, error) {
	result := report{Rows: all.counts(), Runs: o.runs}
	err := apart(func() error {
		if _, err := program(ctx, o, all.sample()); err != nil {
			return fmt.Errorf("write a sample: %w", err)
		}
		return o.repeat(ctx, all, o.runs, &result)
	})
	result.compare(o.took)
	return result, err
}

// repeat writes all rows again inside of the namespace of the run before, then by the agent's rooms inside of that.
func (o options) repeat(ctx context.Context, all rows, runs int, result *report) error {
	if runs == 0 {
		return nil
	}
	return apart(func() error {
		tables, err := program(ctx, o, all)
		if err := errors.Join(err, o.clear()); err != nil {
			return err
		}
		result.take(tables)
		return apart(func() error {
			took, err := byRooms(ctx, o, all)
			if err := errors.Join(err, o.clear()); err != nil {
				return fmt.Errorf("by the agent's rooms: %w", err)
			}
			result.takeRooms(took)
			return o.repeat(ctx, all, runs-1, result)
		})
	})
}

// clear takes away the virtual servers that were written, which the next ones would share a table with.
func (o options) clear() error {
	if !o.wants(tableIPVS) {
		return nil
	}
	family, err := ipvsFamily()
	if err != nil {
		return err
	}
	s, err := dial(unix.NETLINK_GENERIC)
	if err != nil {
		return err
	}
	defer s.Close()
	p := &parcel{}
	p.genl(family, flushServers)
	return s.write(p.cut(1))
}

// program packs rows, writes them to this thread's namespace and checks that they are there.
func program(ctx context.Context, o options, all rows) ([]table, error) {
	var tables []table
	for _, name := range tableNames {
		if !o.wants(name) || all.counts().of(name) == 0 {
			continue
		}
		t, err := o.writeTable(ctx, name, all)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		tables = append(tables, t)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return tables, verify(ctx, tables, all)
}

// verify reads back what was written.
func verify(ctx context.Context, written []table, wanted rows) error {
	var names []string
	for _, t := range written {
		names = append(names, t.Name)
	}
	o := options{device: theLink, tables: strings.Join(names, ",")}
	have, err := readKernel(ctx, o)
	if err != nil {
		return err
	}
	return have.missing(wanted.only(o.wants))
}

// writeTable packs one table and measures how long writing it takes.
func (o options) writeTable(ctx context.Context, name string, all rows) (table, error) {
	began := time.Now()
	protocol, p, err := o.pack(ctx, name, all)
	if err != nil {
		return table{}, err
	}
	sends := p.cut(o.perSend)
	packed := time.Since(began)
	s, err := dial(protocol)
	if err != nil {
		return table{}, err
	}
	defer s.Close()
	t := table{Name: name, Rows: all.counts().of(name), Messages: len(p.starts), Sends: len(sends), Bytes: len(p.bytes), Packing: toSeconds(packed)}
	t.Wall, t.CPU, err = measured(func() error { return s.write(sends) })
	return t, err
}

// pack finds out what the messages of a table need to know, and packs them.
func (o options) pack(ctx context.Context, name string, all rows) (protocol int, p *parcel, err error) {
	switch name {
	case tableIPVS:
		family, err := ipvsFamily()
		if err != nil {
			return 0, nil, err
		}
		return unix.NETLINK_GENERIC, packServers(family, all.Servers), nil
	case tableSets:
		revisions, err := revisionsOf(ctx, all.Sets)
		if err != nil {
			return 0, nil, err
		}
		return unix.NETLINK_NETFILTER, packSets(all.Sets, revisions), nil
	default:
		link, err := addLink(theLink, o.kind)
		if err != nil {
			return 0, nil, err
		}
		return unix.NETLINK_ROUTE, packAddresses(link, all.Addresses), nil
	}
}

// measured runs a function and returns its time and the processor time of this process meanwhile. Garbage is collected before.
func measured(f func() error) (wall, cpu seconds, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC()
	before, began := processorTime(), time.Now()
	err = f()
	took := time.Since(began)
	return toSeconds(took), toSeconds(processorTime() - before), err
}

func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ipvsFamily is the number that generic netlink gave to IPVS.
func ipvsFamily() (uint16, error) {
	h, err := netlink.NewHandle(unix.NETLINK_GENERIC)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	family, err := h.GenlFamilyGet("IPVS")
	if err != nil {
		return 0, fmt.Errorf("find IPVS in generic netlink: %w", err)
	}
	return family.ID, nil
}

// revisionsOf asks which revision of each set's type this kernel has.
func revisionsOf(ctx context.Context, sets []setRow) ([]uint8, error) {
	h, err := ipset.New(ipset.Options{})
	if err != nil {
		return nil, err
	}
	defer h.Close()
	all := make([]uint8, len(sets))
	for i, s := range sets {
		if all[i], err = h.Revision(ctx, s.Set.Type, s.Set.Family); err != nil {
			return nil, err
		}
	}
	return all, nil
}
