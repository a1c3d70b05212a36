// Package host asks what a node lacks to carry Services, and what hurts them, as far as files of the kernel
// answer that. Nothing is changed. Whether IPVS, sets or rules work is found out by package nodecheck.
package host
