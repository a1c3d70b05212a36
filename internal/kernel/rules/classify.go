package rules

import (
	"errors"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// lockMessage is printed when the wait for the xtables lock ends without it.
const lockMessage = "holding the xtables lock"

// lockStatus is how legacy's tools end then.
const lockStatus = 4

// setMessage is printed by iptables's match of sets, which reads them through a raw socket
// (extensions/libxt_set.h, get_version), and setFix is the missing capability.
const (
	setMessage = "Can't open socket to ipset"
	setFix     = "rules that name a set take CAP_NET_RAW, also to be listed"
)

// errDenied: a capability is missing, so that nothing works here.
var errDenied = errors.Join(ErrUnsupported, fs.ErrPermission)

// messages maps what the tools say to the sentinels, first match wins. The
// exit status cannot do it: status 4 is a lock time-out for the legacy tools
// and any refusal by the kernel for the nft ones.
var messages = []struct {
	text string
	kind error
}{
	{"you must be root", errDenied},
	{setMessage, errDenied},
	{lockMessage, ErrBusy},
	{"Resource temporarily unavailable", ErrBusy},
	{"Device or resource busy", ErrBusy},
	{"Too many links", ErrBusy},
	{"Directory not empty", ErrBusy},
	{"already exists", ErrExist},
	{"File exists", ErrExist},
	{"Couldn't load match", ErrUnsupported},
	{"missing kernel module", ErrUnsupported},
	{"unknown option", ErrUnsupported},
	{"can't initialize", ErrUnsupported},
	{"unable to initialize table", ErrUnsupported},
	{"table name", ErrUnsupported},
	{"Table does not exist", ErrUnsupported},
	{"Could not fetch rule set generation id", ErrUnsupported},
	{"not supported", ErrUnsupported},
	{"No such file or directory", ErrNotExist},
	{"No chain/target/match by that name", ErrNotExist},
	{"does not exist", ErrNotExist},
	{"doesn't exist", ErrNotExist},
	{"Bad rule", ErrNotExist},
}

var targetMessage = regexp.MustCompile("Couldn't load target `([^']*)'")

// classify names the sentinel for a failed tool, nil if none fits.
func classify(status int, text string) error {
	if m := targetMessage.FindStringSubmatch(text); m != nil {
		return missingTarget(m[1])
	}
	for _, m := range messages {
		if strings.Contains(text, m.text) {
			return m.kind
		}
	}
	if status == lockStatus && text == "" {
		return ErrBusy
	}
	return nil
}

// chainMessage is how nft misses the chain that a rule leads to.
var chainMessage = regexp.MustCompile("Chain '([^']*)' does not exist")

// missingChain is the chain that a tool misses by name, "" if it names none.
func missingChain(text string) string {
	for _, pattern := range []*regexp.Regexp{chainMessage, targetMessage} {
		if m := pattern.FindStringSubmatch(text); m != nil {
			return m[1]
		}
	}
	return ""
}

// missingTarget tells a chain from an extension: the tools look for both by
// the same message, and no extension has a dash in its name.
func missingTarget(name string) error {
	if strings.Contains(name, "-") {
		return ErrNotExist
	}
	return ErrUnsupported
}

// The parser of both backends prints "Error occurred at line: 12" or "COMMIT expected at line 12". If
// the kernel refuses, nft prints "line 12: RULE_APPEND failed", and legacy prints "line 12 failed".
var lineMessage = regexp.MustCompile(`line:? ([0-9]+)`)

// faultyLine is the line of restore input that the message blames, 0 if it
// names none.
func faultyLine(text string) int {
	m := lineMessage.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return n
}
