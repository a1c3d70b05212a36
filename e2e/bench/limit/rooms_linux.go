package main

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// byRooms writes rows to this thread's namespace as the agent does, by its rooms and in batches of its size, checks that they are there, and
// returns how long each table took. Addresses are left out where the link is to be of a type that the agent does not make.
func byRooms(ctx context.Context, o options, all rows) (map[string]seconds, error) {
	took := map[string]seconds{}
	var written []table
	for _, room := range []struct {
		table string
		open  func(context.Context, rows) (write func() error, err error)
	}{{tableSets, setsByRoom}, {tableIPVS, serversByRoom}, {tableAddresses, addressesByRoom}} {
		if !o.wants(room.table) || all.counts().of(room.table) == 0 || room.table == tableAddresses && o.kind != agentKind {
			continue
		}
		write, err := room.open(ctx, all)
		if err != nil {
			return nil, err
		}
		wall, _, err := measured(func() error { return elsewhere(write) })
		if err != nil {
			return nil, err
		}
		took[room.table], written = wall, append(written, table{Name: room.table})
	}
	return took, verify(ctx, written, all)
}

// agentKind is the type of the agent's link.
const agentKind = "dummy"

// elsewhere runs a function on another thread than the caller's, which is locked: there, each hand-over to a goroutine would be one to a thread.
func elsewhere(f func() error) error {
	done := make(chan error)
	go func() { done <- f() }()
	return <-done
}

func serversByRoom(ctx context.Context, all rows) (func() error, error) {
	h, err := vserver.New(zap.NewNop(), vserver.Options{})
	if err != nil {
		return nil, err
	}
	var servers []vserver.ServerChange
	var destinations []vserver.DestinationChange
	for _, s := range all.Servers {
		servers = append(servers, vserver.ServerChange{Key: s.Key, Server: s.Server})
		for _, d := range s.Destinations {
			key := vserver.DestinationKey{Server: s.Key, Addr: d.Addr.Addr(), Port: d.Addr.Port()}
			destinations = append(destinations, vserver.DestinationChange{Key: key, Destination: d.Destination})
		}
	}
	return func() error {
		defer h.Close()
		err := inBatches(servers, func(batch []vserver.ServerChange) []error { return h.WriteServers(ctx, batch) })
		return errors.Join(err, inBatches(destinations, func(batch []vserver.DestinationChange) []error { return h.WriteDestinations(ctx, batch) }))
	}, nil
}

func setsByRoom(ctx context.Context, all rows) (func() error, error) {
	h, err := ipset.New(ipset.Options{})
	if err != nil {
		return nil, err
	}
	sets, batches := make([]ipset.Set, len(all.Sets)), make([]ipset.Batch, len(all.Sets))
	for i, s := range all.Sets {
		sets[i], batches[i].Set = s.Set, s.Set
		for _, e := range s.Entries {
			batches[i].Changes = append(batches[i].Changes, ipset.AddEntry(e))
		}
	}
	return func() error {
		defer func() { _ = h.Close() }()
		errs := h.CreateAll(ctx, sets...)
		for _, of := range h.WriteAll(ctx, batches...) {
			errs = append(errs, of...)
		}
		return errors.Join(errs...)
	}, nil
}

func addressesByRoom(ctx context.Context, all rows) (func() error, error) {
	h, err := link.New(zap.NewNop(), link.Options{Name: theLink})
	if err != nil {
		return nil, err
	}
	if _, err := h.Ensure(ctx); err != nil {
		h.Close()
		return nil, err
	}
	changes := make([]link.Change, len(all.Addresses))
	for i, a := range all.Addresses {
		changes[i] = link.Change{Op: link.Add, Addr: a}
	}
	return func() error {
		defer h.Close()
		return inBatches(changes, func(batch []link.Change) []error { return h.Write(ctx, batch) })
	}, nil
}

// inBatches writes rows as many at a time as the agent does.
func inBatches[C any](changes []C, write func([]C) []error) error {
	var errs []error
	for batch := range slices.Chunk(changes, delta.DefaultBatch) {
		errs = append(errs, write(batch)...)
	}
	return errors.Join(errs...)
}
