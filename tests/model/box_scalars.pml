/* The protocol of a box's scalars (core/box.h): four blocks, a lock that names its holder, and the newest
 * version. Every word is a step of its own; writers and the reader may die at each step.
 *
 * Checked: no reader accepts a mixture of two versions or another version than it names; versions only
 * grow; nobody waits for the dead for ever (an invalid end state).
 *
 * Each BUG_… is a mistake that the check must find. */

#ifndef WRITES
#define WRITES 3
#endif
#define BLOCKS 4
#ifdef BUG_WINDOW
#define PASSED 3
#else
#define PASSED 2
#endif

byte newest;                /* version */
byte word_a[BLOCKS];        /* block v % 4 of version v holds v in both */
byte word_b[BLOCKS];
byte owner;                 /* of the lock `writer`: 0, or a writer's number */
bool dead[3];
byte deaths;

#define MAY_DIE if :: deaths < 2 -> atomic { deaths++; dead[me] = true; goto end } :: true fi

proctype Writer(byte me) {
  byte left = WRITES, version, block;
  do
  :: left == 0 -> break
  :: else ->
#ifndef BUG_NO_LOCK
    atomic {
#ifdef BUG_TAKES_FROM_THE_LIVING
      true -> owner = me
#elif defined(BUG_NEVER_RECLAIMS)
      owner == 0 -> owner = me
#else
      (owner == 0 || dead[owner]) -> owner = me
#endif
    }
#endif
    MAY_DIE;
    version = newest + 1;
    block = version % BLOCKS;
#ifdef BUG_STORES_FIRST
    newest = version;
    MAY_DIE;
#endif
    word_a[block] = version;
    MAY_DIE;
    word_b[block] = version;
    MAY_DIE;
#ifndef BUG_STORES_FIRST
    assert(newest < version);
    newest = version;
    MAY_DIE;
#endif
#ifndef BUG_NO_LOCK
    if :: owner == me -> owner = 0 :: else fi;
#endif
    left--
  od;
end:
  skip
}

proctype Reader() {
  byte version, a, b, now, read = 0, last = 0;
  do
  :: read == 2 -> break
  :: else ->
    version = newest;
    a = word_a[version % BLOCKS];
    b = word_b[version % BLOCKS];
    now = newest;
    if
#ifdef BUG_NO_RECHECK
    :: true ->
#else
    :: now - version <= PASSED ->
#endif
      assert(a == version && b == version);
      assert(version >= last);
      last = version;
      read++
#ifndef BUG_NO_RECHECK
    :: else
#endif
    fi
  od
}

init {
  atomic { run Writer(1); run Writer(2); run Reader() }
}
