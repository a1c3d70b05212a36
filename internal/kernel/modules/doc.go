// Package modules loads modules of the kernel with modprobe, and describes what an operator can do
// about one that is missing. It never decides that the agent cannot run: packages that use a module find
// out whether the kernel has it.
package modules
