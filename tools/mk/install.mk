# make install [DESTDIR=...] [PREFIX=...]

PREFIX := /usr/local
DESTDIR :=
BINDIR := $(PREFIX)/bin
LIBDIR := $(PREFIX)/lib
INCLUDEDIR := $(PREFIX)/include
MANDIR := $(PREFIX)/share/man
UNITDIR := $(PREFIX)/lib/systemd/system
# udev and systemd read their folders below /usr/lib and /usr/local/lib.
UDEVDIR := $(PREFIX)/lib/udev/rules.d
SYSUSERSDIR := $(PREFIX)/lib/sysusers.d
FULL_NAME := libtilewright.so.$(VERSION)

$(BUILD)/tilewright.pc: tools/mk/tilewright.pc.in tools/mk/install.mk tools/mk/config.mk FORCE
	@mkdir -p $(@D)
	@sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(PKG_LIBS)|' $< >$@

$(BUILD)/%.service: tools/systemd/%.service.in tools/mk/install.mk FORCE
	@mkdir -p $(@D)
	@sed -e 's|@BINDIR@|$(BINDIR)|' $< >$@

UNITS := $(patsubst tools/systemd/%.in,$(BUILD)/%,$(wildcard tools/systemd/*.service.in))
MAN_PAGES := $(wildcard tools/man/*.1)
FORMAT_PAGES := $(wildcard tools/man/*.5)
CONCEPT_PAGES := $(wildcard tools/man/*.7)

.PHONY: install
install: all $(BUILD)/tilewright.pc $(UNITS)
	install -d '$(DESTDIR)$(BINDIR)' '$(DESTDIR)$(LIBDIR)/pkgconfig' '$(DESTDIR)$(INCLUDEDIR)/tilewright'
	install -m 755 $(COMMAND) '$(DESTDIR)$(BINDIR)/'
	install -m 644 $(STATIC_LIB) '$(DESTDIR)$(LIBDIR)/'
	install -m 644 $(SHARED_LIB) '$(DESTDIR)$(LIBDIR)/$(FULL_NAME)'
	ln -sf $(FULL_NAME) '$(DESTDIR)$(LIBDIR)/$(SONAME)'
	ln -sf $(SONAME) '$(DESTDIR)$(LIBDIR)/libtilewright.so'
	install -m 644 $(BUILD)/tilewright.pc '$(DESTDIR)$(LIBDIR)/pkgconfig/'
	install -m 644 include/tilewright/*.h include/tilewright/*.def '$(DESTDIR)$(INCLUDEDIR)/tilewright/'
	install -d '$(DESTDIR)$(UNITDIR)'
	install -m 644 $(UNITS) '$(DESTDIR)$(UNITDIR)/'
ifneq ($(MAN_PAGES),)
	install -d '$(DESTDIR)$(MANDIR)/man1'
	install -m 644 $(MAN_PAGES) '$(DESTDIR)$(MANDIR)/man1/'
endif
ifneq ($(FORMAT_PAGES),)
	install -d '$(DESTDIR)$(MANDIR)/man5'
	install -m 644 $(FORMAT_PAGES) '$(DESTDIR)$(MANDIR)/man5/'
endif
ifneq ($(CONCEPT_PAGES),)
	install -d '$(DESTDIR)$(MANDIR)/man7'
	install -m 644 $(CONCEPT_PAGES) '$(DESTDIR)$(MANDIR)/man7/'
endif
	install -d '$(DESTDIR)$(UDEVDIR)' '$(DESTDIR)$(SYSUSERSDIR)'
	install -m 644 udev/60-tilewright.rules '$(DESTDIR)$(UDEVDIR)/'
	install -m 644 udev/tilewright.conf '$(DESTDIR)$(SYSUSERSDIR)/'
