/* The protocol of a box's arrays (core/box.h): slots, pins by hazard pointer, the turn `arrays`, the lock
 * `writer`, a writer of scalars in between, a reader that pins and one that may only read. Every word is a
 * step of its own; array writers and the pinning reader may die at each step.
 *
 * Checked: what a reader accepts is the whole content of the version that it names, and does not change
 * while it is pinned; a filled slot is never the newest; nobody waits for the dead for ever.
 *
 * Each BUG_… is a mistake that the check must find. */

#ifndef WRITES
#define WRITES 3
#endif
#define SLOTS 3
#define VERSIONS 12

byte version;               /* with `slot` one word, the newest: stored and loaded in one step */
byte slot;
byte cell_a[SLOTS];         /* the content of a slot: both cells alike */
byte cell_b[SLOTS];
byte filled[SLOTS];
byte content[VERSIONS];     /* what version v holds; for the check only */
byte pin;                   /* of the pinning reader: 0, or slot + 1 */
byte turn, lock;            /* 0, or the holder's number */
bool dead[5];               /* writers 1 and 2, scalars 3, the pinning reader 4 */
byte deaths;
byte tags;

#define MAY_DIE if :: deaths < 1 -> atomic { deaths++; dead[me] = true; goto end } :: true fi
#ifdef BUG_NEVER_RECLAIMS
#define TAKE(what) atomic { (what == 0) -> what = me }
#else
#define TAKE(what) atomic { (what == 0 || dead[what]) -> what = me }
#endif

proctype ArrayWriter(byte me) {
  byte left = WRITES, old, s, seen, tag;
  do
  :: left == 0 -> break
  :: else ->
#ifndef BUG_NO_TURN
    TAKE(turn);
#endif
    MAY_DIE;
    old = slot;
    seen = pin;
#ifdef BUG_TAKES_A_LIVING_PIN
    seen = 0;
#endif
    if
    :: dead[4] -> seen = 0
    :: else
    fi;
    s = (old + 1) % SLOTS;
    if
    :: seen == s + 1 -> s = (old + 2) % SLOTS
    :: else
    fi;
#ifdef BUG_FILLS_THE_NEWEST
    s = old;
#endif
    atomic { tags++; tag = tags }
#ifndef BUG_COUNTS_LATE
    filled[s]++;
#endif
    MAY_DIE;
    cell_a[s] = tag;
    MAY_DIE;
    cell_b[s] = tag;
#ifdef BUG_COUNTS_LATE
    filled[s]++;
#endif
    MAY_DIE;
    TAKE(lock);
    MAY_DIE;
    atomic { version++; slot = s; content[version] = tag }
    MAY_DIE;
    lock = 0;
    MAY_DIE;
#ifndef BUG_NO_TURN
    turn = 0;
#endif
    left--
  od;
end:
  skip
}

proctype ScalarWriter(byte me) {
  byte s;
#ifdef BUG_STALE_SLOT
  s = slot;
#endif
  TAKE(lock);
#ifndef BUG_STALE_SLOT
  s = slot;
#endif
  atomic { content[version + 1] = content[version]; version++; slot = s }
  lock = 0
}

proctype PinningReader(byte me) {
  byte s, v, a, b, again;
  s = slot;
  do
  :: pin = s + 1;
    MAY_DIE;
    atomic { again = slot; v = version }
#ifdef BUG_NO_RECHECK
    break;
#endif
    if
    :: again == s -> break
    :: else -> s = again
    fi
  od;
  a = cell_a[s];
  MAY_DIE;
  b = cell_b[s];
#ifdef BUG_NO_RECHECK
  assert(a == b);
#else
  assert(a == content[v] && b == content[v]);
#endif
  MAY_DIE;
  assert(cell_a[s] == a);
  assert(cell_b[s] == b);
  pin = 0;
end:
  skip
}

proctype CopyingReader() {
  byte s, v, a, b, count, again;
  do
  :: s = slot;
    count = filled[s];
    atomic { again = slot; v = version }
    if
    :: again != s -> skip
    :: else ->
      a = cell_a[s];
      b = cell_b[s];
      if
      :: filled[s] == count -> break
      :: else
      fi
    fi
  od;
  assert(a == content[v] && b == content[v])
}

init {
  atomic { run ArrayWriter(1); run ArrayWriter(2); run ScalarWriter(3); run PinningReader(4) }
#ifdef COPYING
  run CopyingReader()
#endif
}
