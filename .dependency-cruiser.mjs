// Imports point down: cli, library → batch, gallery → session → budget, jobs, speech, responses, protocols, config, sandbox → ledger,
// http → vocabulary.
const layer = (name, from, to, comment) => ({
  name,
  comment,
  severity: 'error',
  from: { path: from },
  to: { path: to },
});
const folders =
  '^src/(cli|library|gallery|batch|session|budget|jobs|speech|responses|protocols|config|sandbox|ledger|http)/';

export default {
  forbidden: [
    layer('vocabulary-imports-no-folder', '^src/[^/]+\\.ts$', folders, 'Root files are the nouns.'),
    layer(
      'http-looks-down',
      '^src/http/',
      '^src/(cli|library|gallery|batch|session|budget|jobs|speech|responses|protocols|config|sandbox|ledger)/',
      'http knows only the vocabulary.',
    ),
    layer(
      'ledger-looks-down',
      '^src/ledger/',
      '^src/(cli|library|gallery|batch|session|budget|jobs|speech|responses|protocols|config|sandbox|http)/',
      'The ledger keeps records; what they mean for money is decided above it.',
    ),
    layer(
      'budget-looks-down',
      '^src/budget/',
      '^src/(cli|library|gallery|batch|session|jobs|speech|responses|config|sandbox|http)/',
      'A budget knows amounts; what became of a job is told to it.',
    ),
    layer(
      'protocols-are-pure',
      '^src/protocols/',
      '^src/(cli|library|gallery|batch|session|budget|jobs|speech|responses|config|sandbox|ledger)/',
      'A protocol makes one exchange; what is above it decides.',
    ),
    layer(
      'protocols-touch-nothing',
      '^src/protocols/',
      '^(node:)?(fs|fs/promises|timers|timers/promises|child_process)$',
      'A protocol never sleeps, prints or touches the disk.',
    ),
    layer(
      'protocol-a-alone',
      '^src/protocols/a/',
      '^src/protocols/(b|c)/',
      'Siblings never import each other.',
    ),
    layer(
      'protocol-b-alone',
      '^src/protocols/b/',
      '^src/protocols/(a|c)/',
      'Siblings never import each other.',
    ),
    layer(
      'protocol-c-alone',
      '^src/protocols/c/',
      '^src/protocols/(a|b)/',
      'Siblings never import each other.',
    ),
    layer(
      'jobs-name-no-protocol',
      '^src/jobs/',
      '^src/protocols/(a|b|c|registry)',
      'What can be done with any job names no protocol.',
    ),
    layer(
      'responses-are-no-jobs',
      '^src/responses/',
      '^src/(jobs|speech|ledger)/',
      'A call of Responses leaves no job behind.',
    ),
    layer(
      'jobs-know-no-speech',
      '^src/jobs/',
      '^src/(speech|responses)/',
      'Speech is one kind of job; jobs know none.',
    ),
    layer(
      'machinery-is-not-cli',
      '^src/(gallery|batch|session|budget|jobs|speech|responses|config|sandbox)/',
      '^src/(cli|library)/',
      'Only cli talks to people, and only library to programs.',
    ),
    layer('cli-and-library-are-siblings', '^src/cli/', '^src/library/', 'What both need stands below them.'),
    layer('library-is-silent', '^src/library/', '^src/cli/', 'A library prints nothing.'),
    layer(
      'session-looks-down',
      '^src/session/',
      '^src/batch/',
      'A session opens what single jobs need; a batch is made of them.',
    ),
    layer(
      'session-is-handed-down',
      '^src/(payment|budget|jobs|speech|responses)/',
      '^src/session/',
      'What works on a job is given what it works with.',
    ),
    layer(
      'config-stands-alone',
      '^src/config/',
      '^src/(gallery|batch|session|budget|jobs|speech|responses|protocols|http|sandbox|ledger)/',
      'config/ knows only the vocabulary.',
    ),
    layer(
      'conf-has-one-user',
      '^src/(?!config/store\\.ts)',
      'node_modules/conf/',
      'config/store is the only user of conf.',
    ),
    layer(
      'the-client-speaks-through-undici',
      '^src/(?!sandbox/)',
      '^(node:)?(http|https|http2|net|tls)$',
      'One HTTP stack, and the server of the sandbox, which serves galleries too. Types count, and so does what is loaded later.',
    ),
    layer(
      'a-page-runs-in-a-browser',
      '^src/gallery/page/',
      '^(?!src/gallery/(page/|(data|loudness)\\.ts$))',
      'It shares with mgw nothing but the shape of its data, and how a sound is drawn.',
    ),
    {
      name: 'sandbox-shares-nothing-with-the-client',
      comment: 'The two must not be able to agree on a mistake.',
      severity: 'error',
      from: { path: '^src/sandbox/' },
      to: { path: '^src/', pathNot: '^src/sandbox/' },
    },
    { name: 'no-circles', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'no-unresolved',
      severity: 'error',
      from: {},
      to: { couldNotResolve: true, pathNot: '^virtual:' },
    },
  ],
  options: {
    doNotFollow: { path: ['node_modules', '^dist/'] },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'node', 'default', 'types'],
    },
  },
};
