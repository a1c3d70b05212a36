// Package vservertest replaces the kernel in tests of the callers of kernel/vserver.
//
// Fake has the methods of vserver.Handle over a table in memory. It converges
// and refuses as the kernel does, prints itself as `ipvsadm -Sn` would, and
// fails on demand. Contract is the table of behaviours that the Fake and the
// real kernel must both show: a Fake that passes a case the kernel fails is
// wrong.
package vservertest
