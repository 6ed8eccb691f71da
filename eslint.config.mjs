import js from '@eslint/js';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist', 'node_modules', 'coverage'] },
  js.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: {
        projectService: true,
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      // Optional chains and fallbacks on what came from the wire are the point, not noise.
      '@typescript-eslint/no-unnecessary-condition': 'off',
      'no-control-regex': 'off',
      'no-restricted-properties': [
        'error',
        { object: 'process', property: 'exit', message: 'It truncates piped output: set process.exitCode.' },
      ],
    },
  },
  { files: ['src/**'], rules: { 'max-lines': ['error', 257], 'max-lines-per-function': ['error', 60] } },
  {
    files: [
      'bin/*.js',
      'bench/**/*.mjs',
      'test/storm/*.mjs',
      'test/support/*.mjs',
      'scripts/**/*.mjs',
      '*.mjs',
      '.dependency-cruiser.mjs',
    ],
    ...tseslint.configs.disableTypeChecked,
    languageOptions: {
      globals: {
        process: 'readonly',
        console: 'readonly',
        URL: 'readonly',
        setTimeout: 'readonly',
        performance: 'readonly',
      },
    },
  },
  {
    files: ['bin/*.js'],
    languageOptions: { sourceType: 'commonjs', globals: { require: 'readonly', __dirname: 'readonly' } },
    rules: { '@typescript-eslint/no-require-imports': 'off' },
  },
);
