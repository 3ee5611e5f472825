"""The bytes that the parent and its sandboxed processes exchange. Both sides import this module.

The parent starts a *zygote*, a clean interpreter that has loaded the drivers. The two talk over a socket:

    parent                                zygote
      │  FORK + driver number               │
      │  with two pipe ends                 │
      │────────────────────────────────────▶│  fork
      │  PROCESS_STATUS: the process number │
      │◀────────────────────────────────────│
      │                 ...                 │
      │  END + process number               │
      │────────────────────────────────────▶│  kill, wait
      │  PROCESS_STATUS: its exit status    │
      │◀────────────────────────────────────│

Parent and process talk over the two pipes and take turns, so that the process uses no CPU time while the parent works:

    parent                                process
      │                                     │  gives up its rights (lockdown)
      │  PROGRAM_HEADER, program            │
      │────────────────────────────────────▶│  parses, scans, compiles
      │  COMPILED                           │  or NO_LOCKDOWN, NOT_PARSED, NEWER, REFUSED
      │                                     │     + reason
      │◀────────────────────────────────────│
      │  reads the CPU clock                │
      │  GO                                 │
      │────────────────────────────────────▶│  runs the program's top level
      │  LOADED                             │  or RAISED, UNAVAILABLE + reason
      │◀────────────────────────────────────│
      │                                     │  from here on once for each call:
      │  draws the secret inputs            │
      │  INPUT_HEADER, inputs               │
      │────────────────────────────────────▶│  decodes, calls the program, encodes
      │  ANSWER, exactly as many bytes      │  or RAISED, UNAVAILABLE, TOO_LONG + reason
      │  as the header asked for            │
      │◀────────────────────────────────────│
      │  reads the CPU clock                │
      │  END, through the zygote            │

The process is hostile from GO on: it can write anything. So the parent accepts at each stage only the statuses of
that stage, never reads a number of bytes that a running program could choose beyond 255, and refuses a byte that
follows the answer. A *trusted* process (FORK_TRUSTED) runs a program of the project itself; after the inputs it calls
it once for each AGAIN, and writes ANSWER alone.
"""

import struct

#: What the parent asks of the zygote.
FORK = b"F"
FORK_TRUSTED = b"T"
END = b"W"

#: What the parent tells a process.
GO = b"G"
AGAIN = b"."

#: What a process reports: that a stage went well ...
COMPILED = b"C"
LOADED = b"R"
ANSWER = b"O"
#: ... or why it did not. One byte with the length of the reason follows, then the reason in UTF-8.
NO_LOCKDOWN = b"N"
NOT_PARSED = b"S"
NEWER = b"V"
REFUSED = b"P"
UNAVAILABLE = b"A"
RAISED = b"X"
TOO_LONG = b"L"
LONGEST_REASON = 200  # bytes

#: status of success -> the statuses of failure that the same stage may report instead
FAILURES = {
    COMPILED: (NO_LOCKDOWN, NOT_PARSED, NEWER, REFUSED),
    LOADED: (RAISED, UNAVAILABLE),
    ANSWER: (RAISED, UNAVAILABLE, TOO_LONG),
}

PROGRAM_HEADER = struct.Struct("<I")  # bytes of the program
INPUT_HEADER = struct.Struct("<II")  # bytes of the inputs, bytes of the answer
PROCESS_STATUS = struct.Struct("<q")  # a process number, a negative error number, or an exit status
