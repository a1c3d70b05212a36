// Package linediff compares two texts of kernel rows, in the forms of ipvsadm -Sn, ipset save,
// iptables-save and ip addr add, and lists what only one of them has. A row is a line; it belongs
// to a group, such as a server, a set or a chain. The order of lines counts only for rules.
package linediff
