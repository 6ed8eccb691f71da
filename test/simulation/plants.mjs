/**
 * Defects that mgw once had, or that the order of steps in a payment prevents. `npm run simulate -- --plant NAME` puts
 * one into the bundle, and plays schedules until one reveals it. A change consists of a file in src, part of its text,
 * and the text with the defect.
 */
export const plants = {
  'sending-late': [
    ['payment/pay-once.ts', 'await record.sending?.(money, lease.owner)', 'lease.owner'],
    [
      'payment/pay-once.ts',
      'return await (send?.(client, request, options) ?? client.exchange(request, options));',
      `const reply = await (send?.(client, request, options) ?? client.exchange(request, options));
    await record.sending?.(progress.reservation.money, (await progress.getLease()).owner);
    return reply;`,
    ],
  ],
  'hook-skipped': [['http/client.ts', 'await call.onConnected(socket);', '']],
  'rm-live': [
    [
      'jobs/remove.ts',
      "if (command !== 'rm' && (await ledger.lifeOf(owner)) !== 'dead') return 'in_use';",
      'void owner;',
    ],
    ['jobs/remove.ts', 'await keepFromSending(ledger, job, force)', "'kept' as string"],
  ],
  'index-lost': [
    ['ledger/index-log.ts', 'tries += 1) await this.#complete();', 'tries += 1) break;'],
    [
      'ledger/index-log.ts',
      'const complete = (): Promise<void> => repeatIfRemoved(() => this.#addMissing());',
      `const complete = async (): Promise<void> => {
      for (const path of [this.#path, this.#countPath]) await createFile(path, '').catch(ignoreExisting);
    };`,
    ],
  ],
  'index-after-removal': [
    [
      'ledger/job-records.ts',
      'await replaceFile(this.pathOf(id), tombstone);',
      'unlinkSync(this.pathOf(id));',
    ],
    ['ledger/job-records.ts', 'import { lstatSync,', 'import { unlinkSync, lstatSync,'],
    [
      'ledger/file-ledger.ts',
      'await records.remove(id);\n        await noteRemoved(id);',
      "await note({ kind: 'removed', value: '', id }, true);\n        await records.remove(id);",
    ],
    [
      'ledger/file-ledger.ts',
      'const recorded = recordedState();',
      "const recorded = (await index.removed()).has(id) ? 'removed' : recordedState();",
    ],
  ],
  'resubmit-elsewhere': [
    ['flows/find-job.ts', 'checkGateway(job, gateway, choice, wordsOf(job));', 'void choice;'],
  ],
  'hook-hidden': [['http/client.ts', 'if (!isRecorded)', 'if (isRecorded === undefined)']],
  'removed-by-reader': [
    [
      'jobs/create-or-resume.ts',
      'if (!links.has(id)) links.set(id, await findJobById(ledger, id));',
      `if (!links.has(id)) {
      const other = await findJobById(ledger, id);
      if (other.job?.state === 'prepared') await ledger.remove(id);
      else links.set(id, other);
    }`,
    ],
  ],
  'fate-in-two-looks': [['ledger/file-ledger.ts', "return recordedState() ?? 'lost';", "return 'lost';"]],
  'claim-released-by-loser': [
    [
      'ledger/durable-file.ts',
      'await syncFolder(dirname(path));\n    return false;',
      'unlinkSync(path);\n    return false;',
    ],
  ],
  'claim-not-durable': [
    ['ledger/durable-file.ts', 'await syncFolder(dirname(path));\n    return false;', 'return false;'],
  ],
  'key-ignored': [
    [
      'jobs/create-or-resume.ts',
      'if (holder !== undefined && readHolder(holder)?.job !== id) return undefined;',
      '',
    ],
  ],
  'attempt-ignored': [
    [
      'jobs/submit.ts',
      '!== undefined) throw new SentElsewhere();\n    this.#attempt',
      '=== null) throw new SentElsewhere();\n    this.#attempt',
    ],
  ],
  'same-output': [
    [
      'jobs/liveness.ts',
      'if (isRunning(job)) return isRunningFor(job, goal);',
      'if (isRunning(job)) return false;',
    ],
  ],
  'record-not-durable': [
    ['ledger/file-ledger.ts', 'if (isAttempt(name)) await syncFolder(folders.jobs);', ''],
  ],
  'late-poll': [
    [
      'ledger/fold.ts',
      "if (job.state === 'failed' && event.type === 'observed' && event.revokes !== true) return;",
      '',
    ],
    [
      'jobs/watch.ts',
      "verdict.state === 'failed' && current.state === 'failed'",
      "verdict.state === 'failed' && current.state !== 'succeeded'",
    ],
  ],
};
