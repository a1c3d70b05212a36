package vserver

import "strings"

// ServerCommand is the command of ipvsadm(8) that does what a change does.
func ServerCommand(c ServerChange) string {
	words := strings.TrimPrefix(SaveServer(c.Key, c.Server), "-A ")
	switch c.Op {
	case Add:
		return "ipvsadm -A " + words
	case Update:
		return "ipvsadm -E " + words
	default:
		return "ipvsadm -D " + saveKey(c.Key)
	}
}

// DestinationCommand is ServerCommand for a destination.
func DestinationCommand(c DestinationChange) string {
	words := strings.TrimPrefix(SaveDestination(c.Key, c.Destination), "-a ")
	switch c.Op {
	case Add:
		return "ipvsadm -a " + words
	case Update:
		return "ipvsadm -e " + words
	default:
		names, _, _ := strings.Cut(words, " "+saveForward(c.Destination)+" ")
		return "ipvsadm -d " + names
	}
}
