// Package host asks what a node lacks to carry Services, and what hurts them, as far as files of the kernel,
// and of systemd-networkd, answer that. Nothing is changed. Whether IPVS, sets or rules work is found out by package nodecheck.
package host
