# Targets of earlier releases. They work for one more release and name the target that replaces them.
OLD = @echo 'make $@ is now: make $(1)' >&2; $(MAKE) $(1)

race e2e-iptables e2e-kube alerts:
	$(call OLD,e2e WHAT=$(patsubst e2e-%,%,$@))
test-vm:
	$(call OLD,e2e WHAT="packets contracts")
e2e-takeover e2e-kills e2e-million soak model model-vm storm faults:
	$(call OLD,stress WHAT=$(patsubst e2e-%,%,$@))
bench-memory bench-iptables bench-peers bench-limits bench-micro:
	$(call OLD,bench WHAT=$(patsubst bench-%,%,$@))
bench-looks:
	$(call OLD,bench WHAT=queries)
recordings dashboard:
	$(call OLD,golden WHAT=$@)
reproducible sbom man:
	$(call OLD,release SNAPSHOT=1 GUEST=no)

.PHONY: race e2e-iptables e2e-kube alerts test-vm e2e-takeover e2e-kills e2e-million soak model model-vm storm faults bench-memory bench-iptables bench-peers bench-limits bench-micro bench-looks recordings dashboard reproducible sbom man
