package nftables

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// Messages and attributes of nf_tables (include/uapi/linux/netfilter/nf_tables.h).
const (
	group    = 7 // NFNLGRP_NFTABLES
	newTable = nfnetlink.NFTables << 8
	getTable = nfnetlink.NFTables<<8 | 1
	delTable = nfnetlink.NFTables<<8 | 2
	newRule  = nfnetlink.NFTables<<8 | 6
	getRule  = nfnetlink.NFTables<<8 | 7
	newGen   = nfnetlink.NFTables<<8 | 15
	getGen   = nfnetlink.NFTables<<8 | 16

	tableName    = 1
	genID        = 1
	genPID       = 2
	genProgram   = 3
	ruleChain    = 2 // beside tableName, in a question for rules
	verdictChain = 2
)

// appendMessage adds a message with at most one attribute, a name.
func appendMessage(b []byte, kind, flags uint16, seq uint32, family uint8, name string) []byte {
	var resource uint16
	if kind == nfnetlink.BatchBegin || kind == nfnetlink.BatchEnd {
		resource = nfnetlink.NFTables
	}
	w := nfnetlink.Builder{B: b}
	w.Begin(kind, flags, seq, family, resource)
	if name != "" { // a deletion without one would empty the family: see Key.Check
		w.Text(tableName, name)
	}
	w.End()
	return w.B
}

// appendNamed adds a question about an object in a table, by its name.
func appendNamed(b []byte, kind, flags uint16, seq uint32, table Key, attr uint16, name string) []byte {
	w := nfnetlink.Builder{B: b}
	w.Begin(kind, flags, seq, families[table.Family], 0)
	w.Text(tableName, table.Name)
	w.Text(attr, name)
	w.End()
	return w.B
}

// appendRules adds the question for all rules of one chain.
func appendRules(b []byte, seq uint32, table Key, chain string) []byte {
	return appendNamed(b, getRule, nfnetlink.Dump, seq, table, ruleChain, chain)
}

// leadsTo reports whether a message that describes a rule has a verdict that names a chain.
func leadsTo(m nfnetlink.Message, chain string) bool {
	var verdict nfnetlink.Builder
	verdict.Text(verdictChain, chain)
	return m.Kind == newRule && bytes.Contains(m.Body, verdict.B)
}

// readTable reads a message that describes one.
func readTable(m nfnetlink.Message) (Key, error) {
	a := m.Attrs()
	name := a.Text(tableName)
	switch {
	case m.Kind != newTable:
		return Key{}, fmt.Errorf("%w: message %#x of %d bytes for a table", nfnetlink.ErrMalformed, m.Kind, len(m.Body))
	case a.Err() != nil:
		return Key{}, a.Err()
	case name == "":
		return Key{}, fmt.Errorf("%w: table without a name", nfnetlink.ErrMalformed)
	}
	return Key{Family: familyName(m.Family()), Name: name}, nil
}

// readGeneration reads a message with the number of the last transaction.
func readGeneration(m nfnetlink.Message) (uint32, error) {
	a := m.Attrs()
	v, _ := a.Get(genID)
	switch {
	case m.Kind != newGen:
		return 0, fmt.Errorf("%w: message %#x of %d bytes for a generation", nfnetlink.ErrMalformed, m.Kind, len(m.Body))
	case a.Err() != nil:
		return 0, a.Err()
	case len(v.Raw()) != 4:
		return 0, fmt.Errorf("%w: generation of %d bytes", nfnetlink.ErrMalformed, len(v.Raw()))
	}
	return binary.BigEndian.Uint32(v.Raw()), nil
}
