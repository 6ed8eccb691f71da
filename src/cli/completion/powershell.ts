/** A completion script for PowerShell 5.1 and newer, which asks mgw itself. */
export const powershellCompletion = `# PowerShell completion for mgw, written by "mgw completion powershell"
Register-ArgumentCompleter -Native -CommandName mgw -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.EndOffset -lt $cursorPosition -or "$wordToComplete" -eq '' } |
        ForEach-Object { if ($_ -is [System.Management.Automation.Language.StringConstantExpressionAst]) { $_.Value } else { $_.Extent.Text } })
    # Older versions pass no empty argument on.
    $options = @()
    if ("$wordToComplete" -eq '') { $options = @('--new-word') } else { $words += "$wordToComplete" }
    $answer = @(mgw __complete @options -- @words 2>$null)
    if ($answer.Count -eq 0) { return }
    $flag = if ("$wordToComplete" -match '^--[a-z-]+=') { $Matches[0] } else { '' }
    $answer | Select-Object -Skip 1 | ForEach-Object {
        $value, $about = $_ -split "\`t", 2
        if (-not $about) { $about = $value }
        $text = $flag + $value
        # @ begins an expression unless it is quoted.
        if ($text -match "[^\\w./=:+-]") { $text = "'" + ($text -replace "'", "''") + "'" }
        [System.Management.Automation.CompletionResult]::new($text, $value, 'ParameterValue', $about)
    }
    if ($answer[0] -like 'files*') {
        $at = if ($answer[0] -eq 'files @') { '@' } else { '' }
        $typed = "$wordToComplete".Substring($flag.Length).TrimStart('@')
        [System.Management.Automation.CompletionCompleters]::CompleteFilename($typed) | ForEach-Object {
            $path = $_.CompletionText.Trim("'")
            $text = $flag + $at + $path
            if ($text -match "[^\\w./\\\\=:+-]") { $text = "'" + ($text -replace "'", "''") + "'" }
            [System.Management.Automation.CompletionResult]::new($text, $_.ListItemText, $_.ResultType, $_.ToolTip)
        }
    }
}
`;
