// Package rowdiff compares two texts of kernel rows, in the forms of ipvsadm -Sn, ipset save,
// iptables-save and ip addr add, and lists what only one of them has. A row is a line; it belongs
// to a group, such as a server, a set or a chain. Only rules stand in an order that counts.
package rowdiff
