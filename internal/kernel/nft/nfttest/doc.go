// Package nfttest stands in for the kernel in tests of programs that use package nft.
//
// Fake has the methods of nft.Handle and keeps real state. It refuses what the kernel refuses, with
// errors that match the same sentinels, and prints its content as `nft list table` does. Chosen
// calls fail, or hang until their context ends; chosen rows are refused.
//
// Contract runs the behaviours that callers rely on, against the fake and against a kernel.
package nfttest
